import { createHash } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { ERRORS, type ErrorCode } from '../../base/errors.ts';
import { VERSION } from '../status/status-service.ts';
import { escaped } from './listing-page.ts';
import { type KnownRoute, OPERATIONS, openApiDocument } from './openapi/document.ts';
import { OPEN } from './roles.ts';

const STYLE = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
code { overflow-wrap: anywhere; }
section { border-top: 1px solid #8886; }
dt { font-weight: 600; }
dd { margin: 0 0 .25rem 1rem; }
`;

const POLICY = `default-src 'none'; style-src 'sha256-${createHash('sha256').update(STYLE).digest('base64')}'; base-uri 'none'; frame-ancestors 'none'`;

/** Called before any route is added. @returns an array to which each added route is appended */
export function collectRoutes(app: FastifyInstance): KnownRoute[] {
  const routes: KnownRoute[] = [];
  app.addHook('onRoute', ({ method, url, config }) => {
    for (const name of [method].flat()) routes.push({ method: name, url, role: config?.role ?? 'admin' });
  });
  return routes;
}

/** `/openapi.json`, and `/docs` with the same for people, without scripts or the network. */
export function openApiRoutes(app: FastifyInstance, routes: readonly KnownRoute[]): void {
  app.get('/openapi.json', OPEN, async () => openApiDocument(routes, VERSION));

  app.get('/docs', OPEN, async (_request, reply) =>
    reply
      .type('text/html; charset=utf-8')
      .headers({ 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' })
      .send(pageOf(routes)),
  );
}

function pageOf(routes: readonly KnownRoute[]): string {
  const sections = routes.flatMap((route) => sectionOf(route) ?? []).join('\n');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Leasehold over HTTP</title>
<style>${STYLE}</style>
</head>
<body>
<h1>Leasehold over HTTP</h1>
<p>For programs: <a href="/openapi.json">/openapi.json</a> (OpenAPI 3.1). Errors are problem documents (RFC 9457) with a stable <code>code</code>.</p>
${sections}
</body>
</html>
`;
}

function sectionOf({ method, url, role }: KnownRoute): string | null {
  const operation = OPERATIONS[`${method} ${url}`];
  if (operation === undefined) return null;
  const { summary, description, query = {}, headers = {}, answers, errors = {} } = operation;
  const rows = [
    ...Object.entries(query).map(([name, schema]) => [`?${name}`, describe(schema)]),
    ...Object.entries(headers).map(([name, schema]) => [name, describe(schema)]),
    ...Object.entries(answers).map(([status, { text }]) => [status, text]),
    ...Object.entries(errors).map(([code, text]) => [`${ERRORS[code as ErrorCode].status} ${code}`, text]),
  ].map(([name = '', text = '']) => `<dt><code>${escaped(name)}</code></dt><dd>${escaped(text)}</dd>`);
  const shown = url === '/v1/files' || url === '/v1/info' ? `${url}/{volume}/{path}` : url;
  return `<section>
<h2><code>${method} ${escaped(shown)}</code></h2>
<p>${escaped(summary)}. Role: ${role}.</p>
${description === undefined ? '' : `<p>${escaped(description)}</p>\n`}<dl>${rows.join('')}</dl>
</section>`;
}

function describe(schema: object): string {
  return 'description' in schema ? String(schema.description) : '';
}
