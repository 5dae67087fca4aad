import { createHash } from 'node:crypto';
import type { FastifyReply } from 'fastify';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { FilePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';

export const PAGE_ENTRIES = 1000;

/** Returns whether a client with this `Accept` prefers a page to JSON. */
export function wantsPage(accept: string | undefined): boolean {
  const html = Math.max(weightOf(accept, 'text/html'), weightOf(accept, 'application/xhtml+xml'));
  return html > 0 && html >= weightOf(accept, 'application/json');
}

/** Weight of a media type by its name. Wildcards have weight 0: a client that accepts anything gets JSON. */
function weightOf(accept = '', type: string): number {
  for (const range of accept.split(',')) {
    const [name = '', ...parameters] = range.split(';').map((part) => part.trim());
    if (name.toLowerCase() !== type) continue;
    const q = parameters.find((parameter) => /^q=/i.test(parameter))?.slice(2);
    const weight = q === undefined ? 1 : Number(q);
    return Number.isNaN(weight) ? 0 : weight;
  }
  return 0;
}

const STYLE = `
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.2rem; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th { text-align: start; font-weight: 600; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
td.size, th.size { text-align: end; white-space: nowrap; }
td.time { white-space: nowrap; }
form { margin: 1rem 0; padding: 1rem; border: 2px dashed #8886; border-radius: .5rem; }
form.over { border-color: currentColor; }
@media (max-width: 30rem) { .time { display: none; } }
`;

/** Sends dropped files by PUT, one after the other, in bounded memory; without scripts the form does the same. */
const SCRIPT = `
const form = document.querySelector('form');
const status = document.querySelector('[role=status]');
const stop = (event) => { event.preventDefault(); form.classList.toggle('over', event.type === 'dragover'); };
for (const type of ['dragenter', 'dragover', 'dragleave']) form.addEventListener(type, stop);
form.addEventListener('drop', async (event) => {
  stop(event);
  for (const file of event.dataTransfer.files) {
    status.textContent = 'Uploading ' + file.name + ' …';
    const answer = await fetch(encodeURIComponent(file.name), { method: 'PUT', body: file }).catch(() => null);
    if (answer?.ok) continue;
    const problem = await answer?.json().catch(() => null);
    status.textContent = 'Cannot upload ' + file.name + ': ' + (problem?.detail ?? 'the server did not answer');
    return;
  }
  location.reload();
});
`;

const hashOf = (text: string): string => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Allows the page's own style and script, and requests to this server only. */
const POLICY = [
  "default-src 'none'",
  `style-src ${hashOf(STYLE)}`,
  `script-src ${hashOf(SCRIPT)}`,
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Sends a page with a directory's entries after `after`, and a form to upload files. */
export async function sendListingPage(
  reply: FastifyReply,
  gateway: Gateway,
  path: FilePath,
  directory: Attributes,
  after: string,
  limit: number,
): Promise<FastifyReply> {
  const { entries, more } = await gateway.query({
    kind: 'list',
    inode: directory.inode,
    after,
    countMax: limit,
  });
  const rows = entries.map(({ name, attributes }) => rowOf(name, attributes)).join('\n');
  const title = [path.volume, ...path.names].join('/');
  const last = entries.at(-1)?.name;
  const next =
    more && last !== undefined
      ? `<p><a href="?after=${encodeURIComponent(last)}&amp;limit=${limit}" rel="next">More</a></p>`
      : '';
  const up =
    path.names.length === 0 ? '' : '<tr><td><a href="../">..</a></td><td></td><td class="time"></td></tr>\n';
  return reply
    .type('text/html; charset=utf-8')
    .headers({
      'content-security-policy': POLICY,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    })
    .send(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)}/</title>
<style>${STYLE}</style>
</head>
<body>
<h1>${escaped(title)}/</h1>
<table>
<thead><tr><th scope="col">Name</th><th scope="col" class="size">Bytes</th><th scope="col" class="time">Modified</th></tr></thead>
<tbody>
${up}${rows}
</tbody>
</table>
${next}
<form method="post" enctype="multipart/form-data">
<label>Upload files here, or drop them: <input type="file" name="file" multiple required></label>
<button>Upload</button>
<p role="status" aria-live="polite"></p>
</form>
<script>${SCRIPT}</script>
</body>
</html>
`);
}

function rowOf(name: string, { kind, sizeBytes, modifiedNs, target }: Attributes): string {
  const isDirectory = kind === 'directory';
  // Encoded and relative: a name that looks like a scheme or a query stays a name.
  const href = `./${encodeURIComponent(name)}${isDirectory ? '/' : ''}`;
  const shown = `${name}${isDirectory ? '/' : kind === 'symlink' ? ` → ${target}` : ''}`;
  const time = new Date(Number(BigInt(modifiedNs) / 1_000_000n)).toISOString();
  const size = kind === 'file' ? String(sizeBytes) : '';
  return `<tr><td><a href="${escaped(href)}">${escaped(shown)}</a></td><td class="size">${size}</td><td class="time"><time datetime="${time}">${time.slice(0, 19).replace('T', ' ')}</time></td></tr>`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character);
}
