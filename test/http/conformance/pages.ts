import type { Case, Group } from './case.ts';

const HTML = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };
const HOSTILE = `<img src=x onerror=alert(1)>&"'`;
const HOSTILE_PATH = `l/${encodeURIComponent(HOSTILE)}`;

/** Listings for programs and for people. */
export const DIRECTORIES: Group = {
  name: 'listings',
  cases: [
    { method: 'GET', path: 'l/', status: 404, code: 'not-found' },
    { method: 'PUT', path: 'l/', status: 201 },
    {
      method: 'GET',
      path: 'l/',
      status: 200,
      text: '{"entries":[],"more":false}\n',
      has: { 'content-type': 'application/json; charset=utf-8', vary: /accept/i },
    },
    ...['a', 'b', 'c'].map((name): Case => ({ method: 'PUT', path: `l/${name}`, body: name, status: 201 })),
    { method: 'PUT', path: HOSTILE_PATH, body: 'x', status: 201 },
    {
      method: 'GET',
      path: 'l/?limit=2',
      status: 200,
      text: /"name":"<img[\s\S]*"name":"a"[\s\S]*"more":true/,
    },
    {
      method: 'GET',
      path: 'l/?limit=2&after=a',
      status: 200,
      text: /^\{"entries":\[\n\{"name":"b"[\s\S]*"name":"c"[\s\S]*"more":false/,
    },
    { method: 'GET', path: 'l/?after=zzz', status: 200, text: '{"entries":[],"more":false}\n' },
    { method: 'GET', path: 'l/?limit=0', status: 400, code: 'bad-request' },
    { method: 'GET', path: 'l/?limit=x', status: 400, code: 'bad-request' },
    { method: 'GET', path: 'l/?limit=10001', status: 400, code: 'bad-request' },
    { method: 'HEAD', path: 'l/', status: 200, text: '', has: { 'content-type': /json/ } },
    { method: 'HEAD', path: 'l/?watch', status: 200, text: '', has: { 'content-type': /json/ } },
    { method: 'GET', path: 'l/?watch', headers: { 'last-event-id': 'x' }, status: 400, code: 'bad-request' },
    {
      method: 'GET',
      path: 'l/',
      headers: HTML,
      status: 200,
      text: /^<!doctype html>[\s\S]*href="\.\/a"[\s\S]*multipart\/form-data/,
      has: {
        'content-type': 'text/html; charset=utf-8',
        'content-security-policy': /^default-src 'none'; style-src 'sha256-[^']+'; script-src 'sha256-/,
        'x-content-type-options': 'nosniff',
        vary: /accept/i,
      },
    },
    {
      method: 'GET',
      path: 'l/?limit=1',
      headers: HTML,
      status: 200,
      // Neither the name nor the link to the next page is interpreted as markup.
      text: /^(?![\s\S]*<img)[\s\S]*href="\.\/%3Cimg[\s\S]*&lt;img src=x onerror=alert\(1\)&gt;&amp;&quot;&#39;[\s\S]*\?after=%3Cimg/,
    },
    { method: 'GET', path: 'l/', headers: { accept: '*/*' }, status: 200, has: { 'content-type': /json/ } },
    {
      method: 'GET',
      path: 'l/',
      headers: { accept: 'application/json, text/html;q=0.5' },
      status: 200,
      has: { 'content-type': /json/ },
    },
    { method: 'HEAD', path: 'l/', headers: HTML, status: 200, has: { 'content-type': /html/ } },
    {
      method: 'GET',
      path: HOSTILE_PATH,
      headers: HTML,
      status: 200,
      text: 'x',
      has: { 'content-type': 'application/octet-stream' },
    },
    {
      method: 'GET',
      path: 'l/',
      headers: { ...HTML, 'accept-encoding': 'gzip' },
      status: 200,
      has: { 'content-encoding': 'gzip' },
    },
    {
      method: 'GET',
      path: 'l/',
      headers: { ...HTML, 'accept-encoding': 'br;q=0' },
      status: 200,
      has: { 'content-encoding': null },
    },
    {
      method: 'GET',
      path: '/v1/status',
      headers: { 'accept-encoding': 'br' },
      status: 200,
      has: { 'content-encoding': 'br' },
    },
    { method: 'GET', path: '/v1/status', status: 200, text: /"verdict"/, has: { 'content-encoding': null } },
  ],
};

const BOUNDARY = 'xyz';
const LABEL = { 'content-type': `multipart/form-data; boundary=${BOUNDARY}` };

function form(
  parts: readonly (readonly [name: string, body: string])[],
  end = `--${BOUNDARY}--\r\n`,
): string {
  const texts = parts.map(
    ([name, body]) =>
      `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: text/plain\r\n\r\n${body}\r\n`,
  );
  return texts.join('') + end;
}

/** Uploads by a browser's form. */
export const FORMS: Group = {
  name: 'forms',
  cases: [
    { method: 'PUT', path: 'u/', status: 201 },
    {
      method: 'POST',
      path: 'u/',
      headers: LABEL,
      body: form([
        ['one.txt', 'first'],
        ['zwei ü.txt', ''],
      ]),
      status: 201,
      text: /"stored":\[\{"name":"one\.txt","size":5,"etag":"[\s\S]*"created":true\},\{"name":"zwei ü\.txt","size":0/,
    },
    { method: 'GET', path: 'u/one.txt', status: 200, text: 'first' },
    { method: 'GET', path: `u/${encodeURIComponent('zwei ü.txt')}`, status: 200, text: '' },
    {
      method: 'POST',
      path: 'u/',
      headers: { ...LABEL, ...HTML },
      body: form([['one.txt', 'again']]),
      status: 303,
      has: { location: '/v1/files/main/u/' },
    },
    { method: 'GET', path: 'u/one.txt', status: 200, text: 'again' },
    {
      method: 'POST',
      path: 'u/',
      headers: { ...LABEL, 'if-none-match': '*' },
      body: form([['one.txt', 'no']]),
      status: 412,
      code: 'precondition-failed',
    },
    {
      method: 'POST',
      path: 'u/',
      headers: LABEL,
      body: form([['part.txt', 'half']], ''),
      status: 400,
      code: 'bad-request',
    },
    { method: 'GET', path: 'u/part.txt', status: 404, code: 'not-found' },
    { method: 'POST', path: 'u/', headers: LABEL, body: form([]), status: 400, code: 'bad-request' },
    { method: 'POST', path: 'u/', headers: LABEL, body: form([['', '']]), status: 400, code: 'bad-request' },
    {
      method: 'POST',
      path: 'u/',
      headers: LABEL,
      body: form([['..', 'x']]),
      status: 400,
      code: 'bad-request',
    },
    {
      method: 'POST',
      path: 'u/',
      headers: { 'content-type': 'multipart/form-data' },
      body: 'x',
      status: 400,
      code: 'bad-request',
    },
    {
      method: 'POST',
      path: 'u/one.txt',
      headers: LABEL,
      body: form([['x', 'x']]),
      status: 409,
      code: 'not-directory',
    },
    {
      method: 'POST',
      path: 'none/',
      headers: LABEL,
      body: form([['x', 'x']]),
      status: 404,
      code: 'not-found',
    },
    {
      method: 'POST',
      path: 'u/',
      headers: { ...LABEL, origin: 'http://evil.example' },
      body: form([['evil', 'x']]),
      status: 400,
      code: 'bad-request',
    },
    {
      method: 'POST',
      path: 'u/',
      headers: { ...LABEL, origin: 'null' },
      body: form([['evil', 'x']]),
      status: 400,
      code: 'bad-request',
    },
    { method: 'GET', path: 'u/evil', status: 404, code: 'not-found' },
    {
      method: 'POST',
      path: 'u/',
      headers: { ...LABEL, 'sec-fetch-site': 'same-origin' },
      body: form([['mine', 'x']]),
      status: 201,
    },
  ],
};
