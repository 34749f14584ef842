# Simulated cells, GPU exporters and load, to try Headrace without a GPU. Not for production.
#
#   docker build -f deploy/docker/lab.Dockerfile -t headrace-lab:dev .
#   docker run --rm -p 127.0.0.1:8000:8000 headrace-lab:dev
#
# Its health check asks /health at HEADRACE_HEALTH: a cell and an exporter have that page.
FROM python:3.11-slim AS build
WORKDIR /src
COPY constraints.txt ./
COPY shared ./shared
COPY agent ./agent
COPY controller ./controller
COPY lab ./lab
RUN python -m venv /opt/headrace \
 && PIP_CONSTRAINT=/src/constraints.txt /opt/headrace/bin/pip install --no-cache-dir ./shared ./agent ./controller ./lab \
 && /opt/headrace/bin/pip uninstall -y pip \
 && find /opt/headrace -name '*.pyi' -delete

FROM python:3.11-slim
RUN groupadd --system --gid 10001 headrace \
 && useradd --system --no-create-home --uid 10001 --gid 10001 headrace
COPY --from=build /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADRACE_HEALTH=127.0.0.1:8000
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client, os, sys; c = http.client.HTTPConnection(os.environ['HEADRACE_HEALTH'], timeout=2); c.request('GET', '/health'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["headrace-lab"]
CMD ["cell", "--host", "0.0.0.0", "--port", "8000"]
