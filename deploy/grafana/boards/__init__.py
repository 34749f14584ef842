"""Grafana dashboards as code: `make deploy-files` writes ../dashboards."""
