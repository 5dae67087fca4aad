import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { FastifyInstance } from 'fastify';
import type { ServerId } from '../../base/ids.ts';
import { OPEN } from './roles.ts';

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.svg': 'image/svg+xml',
};

interface Asset {
  readonly path: string;
  readonly type: string;
  readonly etag: string;
  readonly bytes: Buffer;
}

/** Serves the dashboard: files without data, which need no role. `control`: where the parent process takes orders. */
export function webRoutes(
  app: FastifyInstance,
  urls: ReadonlyMap<ServerId, string>,
  control: string | null,
): void {
  for (const { path, type, etag, bytes } of assets()) {
    app.get(path, OPEN, (request, reply) => {
      reply.header('content-security-policy', policy(urls, control));
      reply.header('x-content-type-options', 'nosniff');
      reply.header('referrer-policy', 'no-referrer');
      reply.header('cache-control', 'no-cache');
      reply.header('etag', etag);
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply.type(type).send(bytes);
    });
  }
}

function assets(): Asset[] {
  const folder = new URL('../../web/', import.meta.url);
  const own = readdirSync(folder)
    .filter((name) => extname(name) in TYPES)
    .map((name) => assetOf(name === 'index.html' ? '/' : `/web/${name}`, new URL(name, folder)));
  const chart = (name: string): URL => new URL(import.meta.resolve(`uplot/dist/${name}`));
  return [
    ...own,
    assetOf('/web/uplot.js', chart('uPlot.esm.js')),
    assetOf('/web/uplot.css', chart('uPlot.min.css')),
  ];
}

function assetOf(path: string, file: URL): Asset {
  const bytes = readFileSync(fileURLToPath(file));
  const digest = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  return { path, type: TYPES[extname(file.pathname)] as string, etag: `"${digest}"`, bytes };
}

/** Scripts, styles and images of this server only, answers of the cluster's servers, no frames, forms or plug-ins. */
function policy(urls: ReadonlyMap<ServerId, string>, control: string | null): string {
  const origins = [...urls.values(), ...(control === null ? [] : [control])].map(
    (url) => new URL(url).origin,
  );
  return [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    `connect-src 'self' ${[...new Set(origins)].join(' ')}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}
