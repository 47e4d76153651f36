# One image for Driftline's API, scheduler, MLflow and Ray nodes. docs/kubernetes.md explains how to build it.
#
#   docker build -t REGISTRY/driftline:0.3.0 .                              CPU
#   docker build -t REGISTRY/driftline:0.3.0-cuda --build-arg VARIANT=cuda .   GPU nodes: PyTorch brings its own CUDA libraries
#
# Without a network: put wheels into build/wheelhouse (tests/kubernetes/build_image.py shows how) and add
# --build-arg WHEELHOUSE=build/wheelhouse.

ARG BASE=python:3.11-slim

FROM ${BASE} AS builder
# cpu or cuda
ARG VARIANT=cpu
# Index of PyTorch's CPU builds
ARG TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
# Folder of wheels inside the build context; if it is set, nothing is downloaded
ARG WHEELHOUSE=
# More packages, for example "s3fs" for checkpoints in an object store
ARG EXTRA_PACKAGES=
# At the end: packages without what nothing here runs (tests, C sources, types for editors, Java, RLlib, an asynchronous
# Kubernetes client, Arrow Flight, wheels of virtualenv), and bytecode for what the programs import: that of everything
# would make the image a fifth larger.
RUN --mount=type=bind,target=/context \
    set -eu; \
    case "${VARIANT}" in cpu|cuda) ;; *) echo "VARIANT must be cpu or cuda, got ${VARIANT}" >&2; exit 2;; esac; \
    python3 -m venv /opt/driftline; \
    pip="/opt/driftline/bin/python -m pip --no-cache-dir --disable-pip-version-check install --no-compile -c /context/constraints.txt"; \
    if [ -n "${WHEELHOUSE}" ]; then \
        export PIP_NO_INDEX=1 PIP_FIND_LINKS="/context/${WHEELHOUSE}"; \
    elif [ "${VARIANT}" = cpu ]; then \
        $pip torch --index-url "${TORCH_CPU_INDEX}"; \
    fi; \
    mkdir /tmp/source; \
    cd /context; \
    cp -r driftline examples service trainers search_spaces pyproject.toml setup.py README.md LICENSE /tmp/source; \
    $pip torch "/tmp/source[cluster,data]" ${EXTRA_PACKAGES}; \
    packages=/opt/driftline/lib/python3*/site-packages; \
    find /opt/driftline -depth -type d \( -name tests -o -name __pycache__ \) -path '*/site-packages/*' \
        ! -path '*/optuna/*' ! -path '*/torch/*' -exec rm -rf {} +; \
    find /opt/driftline -path '*/torch/bin/*' ! -name torch_shm_manager -delete; \
    find /opt/driftline -path '*/site-packages/*' \( -name '*.map' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' \
        -o -name '*.c' -o -name '*.h' -o -name '*.hpp' -o -name '*.pyi' \) -delete; \
    for unused in torch/include torch/test 'torch/lib/*_test.so' torch/lib/libbackend_with_compiler.so \
        torch/lib/libaoti_custom_ops.so matplotlib/mpl-data/sample_data ray/jars ray/rllib ray/serve ray/llm kubernetes/aio \
        pyarrow/include 'pyarrow/*flight*' 'pyarrow/libarrow_python*.so' 'pyarrow/libarrow_python*.so.*.*' \
        'virtualenv/seed/wheels/embed/*.whl' sklearn/datasets/images; do rm -rf $packages/$unused; done; \
    rm -rf /tmp/source /opt/driftline/bin/py-spy; \
    cd /tmp; \
    for folder in driftline service trainers search_spaces ray/_private ray/autoscaler ray/dashboard; do \
        /opt/driftline/bin/python -m compileall -q $packages/$folder || true; \
    done; \
    PYTHONDONTWRITEBYTECODE= MPLCONFIGDIR=/tmp/matplotlib /opt/driftline/bin/python -W ignore -c "import pkgutil, mlflow.server.auth, ray.tune, service; \
[__import__(module.name) for module in pkgutil.walk_packages(service.__path__, 'service.') \
if not module.name.endswith('__main__') and '.migrations.' not in module.name]"; \
    PYTHONDONTWRITEBYTECODE=1 /opt/driftline/bin/python -m pip check

FROM ${BASE}
ARG VARIANT=cpu
ARG VERSION=0.3.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Driftline" \
      org.opencontainers.image.description="Tunes local update methods and maps their trade-off between convergence and accuracy" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      io.driftline.variant="${VARIANT}"
# KubeRay's probes of Ray nodes need wget. Python's getpass needs a user name.
RUN set -eu; \
    if ! command -v wget >/dev/null; then \
        apt-get update -q; \
        apt-get install -y -q --no-install-recommends wget; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    echo "driftline:x:10001:10001::/tmp:/usr/sbin/nologin" >> /etc/passwd; \
    echo "driftline:x:10001:" >> /etc/group; \
    mkdir /var/lib/driftline; \
    chown 10001:10001 /var/lib/driftline
COPY --from=builder /opt/driftline /opt/driftline
# Only /tmp and DRIFTLINE_HOME are written to: if both are mounted, the root file system can be read-only. NVIDIA's
# device plugin or docker run --gpus chooses the container's GPUs; of their driver it needs only these capabilities.
ENV PATH=/opt/driftline/bin:$PATH \
    HOME=/tmp \
    DRIFTLINE_HOME=/var/lib/driftline \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    RAY_USAGE_STATS_ENABLED=0 \
    MLFLOW_DISABLE_TELEMETRY=true \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /var/lib/driftline
USER 10001:10001
EXPOSE 8080
CMD ["driftline", "serve", "--host", "0.0.0.0"]
