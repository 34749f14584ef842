# The agent alone, for GPU hosts. docs/agent-service.md says which rights it may be given.
#
#   docker build -f deploy/docker/agent.Dockerfile -t headrace-agent:dev .
#   docker run -d --name headrace-agent --restart unless-stopped --network host --cap-drop ALL \
#     -v /etc/headrace:/etc/headrace:ro headrace-agent:dev
#
# ICMP echoes:             sysctl -w net.ipv4.ping_group_range="0 2147483647" on the host (many have it
#                          so), or --user 0 --cap-add NET_RAW: capabilities do not reach other users
# engines' processes:      --pid host --user 0 --cap-add SYS_PTRACE
# NVML (no DCGM exporter): --runtime nvidia -e NVIDIA_VISIBLE_DEVICES=all -e NVIDIA_DRIVER_CAPABILITIES=utility
# reload:                  docker kill --signal HUP headrace-agent
FROM python:3.11-slim AS build
WORKDIR /src
COPY constraints.txt ./
COPY shared ./shared
COPY agent ./agent
RUN python -m venv /opt/headrace \
 && PIP_CONSTRAINT=/src/constraints.txt /opt/headrace/bin/pip install --no-cache-dir ./shared ./agent \
 && /opt/headrace/bin/pip uninstall -y pip \
 && find /opt/headrace -name '*.pyi' -delete

FROM python:3.11-slim
RUN groupadd --system --gid 10001 headrace \
 && useradd --system --no-create-home --uid 10001 --gid 10001 headrace
COPY --from=build /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH \
    MALLOC_ARENA_MAX=2 \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADRACE_HEALTH=127.0.0.1:9464
USER 10001:10001
STOPSIGNAL SIGTERM
# Where `metrics_listen` is another address than this, set HEADRACE_HEALTH to it.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client, os, sys; c = http.client.HTTPConnection(os.environ['HEADRACE_HEALTH'], timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["headrace-agent"]
CMD ["run", "--config", "/etc/headrace/agent.yaml"]
