# The controller and the operators' `headrace`.
#
#   docker build -f deploy/docker/controller.Dockerfile -t headrace-controller:dev .
#   docker run -d --name headrace-controller --restart unless-stopped --cap-drop ALL --read-only \
#     -p 18000:18000 -p 18001:18001 -p 127.0.0.1:18002:18002 \
#     -v /etc/headrace:/etc/headrace:ro -v headrace-state:/var/lib/headrace headrace-controller:dev
#
# state:    `state_dir: /var/lib/headrace` in the settings, so that a restart moves no traffic
# health:   where `listen.admin` is another port than 18002, set HEADRACE_HEALTH to it
# operate:  docker exec headrace-controller headrace status   (with `admin.tokens`: --token, or HEADRACE_TOKEN)
# reload:   docker kill --signal HUP headrace-controller
FROM python:3.11-slim AS build
WORKDIR /src
COPY constraints.txt ./
COPY shared ./shared
COPY controller ./controller
RUN python -m venv /opt/headrace \
 && PIP_CONSTRAINT=/src/constraints.txt /opt/headrace/bin/pip install --no-cache-dir ./shared ./controller \
 && /opt/headrace/bin/pip uninstall -y pip \
 && find /opt/headrace -name '*.pyi' -delete

FROM python:3.11-slim
# A new volume takes its owner from the directory here.
RUN groupadd --system --gid 10001 headrace \
 && useradd --system --no-create-home --uid 10001 --gid 10001 headrace \
 && install -d -m 0700 -o headrace -g headrace /var/lib/headrace
COPY --from=build /opt/headrace /opt/headrace
ENV PATH=/opt/headrace/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    HEADRACE_HEALTH=127.0.0.1:18002
USER 10001:10001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-I", "-c", "import http.client, os, sys; c = http.client.HTTPConnection(os.environ['HEADRACE_HEALTH'], timeout=2); c.request('GET', '/healthz'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["headrace-controller"]
CMD ["run", "--config", "/etc/headrace/controller.yaml"]
