FROM node:24-bookworm-slim

# For `leasehold mount` in a container; the servers do not need it.
RUN apt-get update \
  && apt-get install -y --no-install-recommends fuse3 \
  && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/leasehold

# .npmrc belongs to the installation: it keeps install scripts, and with them the need of a compiler, out.
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional && npm cache clean --force

COPY . .

# A named volume takes over the owner of the folder that it covers.
RUN mkdir -p /data && chown node:node /data && ln -s /opt/leasehold/bin/leasehold.js /usr/local/bin/leasehold
USER node
VOLUME /data
EXPOSE 7401

ENV LEASEHOLD_DATA=/data \
    MALLOC_ARENA_MAX=2 \
    LEASEHOLD_LISTEN=0.0.0.0:7401

# Alive, not ready: without a majority a server is in good health and waits.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + process.env.LEASEHOLD_LISTEN.split(':').pop() + '/livez').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]

# Node is the process that gets the signals: no shell, no npm in between.
ENTRYPOINT ["node", "bin/leasehold.js"]
CMD ["server"]
