import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import type * as Undici from 'undici';
import { Agent, buildConnector, Pool, request } from '../../platform/undici.ts';

/**
 * Goal: programs load only the parts of undici and of `node:http` that they use, and these parts equal those of the
 * whole packages.
 * Method: load the whole packages after the parts and compare; separate processes report what they have loaded.
 */
const load = createRequire(import.meta.url);
const { prototype } = load('undici/lib/dispatcher/dispatcher.js') as { readonly prototype: object };
const methods = { ...prototype };
const undici = load('undici') as typeof Undici;

/** What the package loads when it is imported as a whole. */
const NOT_NEEDED = /^(?:index\.js$|lib\/(?:web|mock|cache|interceptor|handler)\/)/;
const MODULES_MAX = 40;

const server = createServer(async (message, response) => {
  let body = '';
  for await (const bytes of message) body += bytes;
  response.end(JSON.stringify([message.method, message.url, message.headers.host, body]));
});
let url = '';

before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

after(async () => {
  await undici.getGlobalDispatcher().close();
  server.close();
});

test('the parts are the same objects as in the whole package, with all methods', () => {
  assert.equal(Pool, undici.Pool);
  assert.equal(Agent, undici.Agent);
  assert.equal(buildConnector, undici.buildConnector);
  assert.deepEqual(Object.keys(methods).sort(), ['connect', 'pipeline', 'request', 'stream', 'upgrade']);
  assert.deepEqual(methods, { ...prototype }, 'Loading the whole package adds no methods');
});

test('a request by URL equals that of the package', async () => {
  const agent = new Agent();
  const cases: readonly [string | URL, NonNullable<Parameters<typeof request>[1]>][] = [
    [url, {}],
    [`${url}/a%20b?c=d%2F&e#f`, { dispatcher: agent, method: 'GET' }],
    [new URL('/where?', url), { dispatcher: agent, body: 'contents' }],
    [`${url}/x`, { dispatcher: agent, method: 'POST', body: 'more', headers: { 'x-a': '1' } }],
    [`${url}/x`, { query: { one: 1 } }],
  ];
  for (const [where, options] of cases) {
    const answers = [];
    for (const ask of [request, undici.request]) answers.push(await (await ask(where, options)).body.json());
    assert.deepEqual(answers[0], answers[1], String(where));
  }
  await agent.close();
});

test('a request uses the connections that the whole process shares', async () => {
  const asked: unknown[] = [];
  const shared = undici.getGlobalDispatcher();
  undici.setGlobalDispatcher(
    shared.compose((dispatch) => (options, handler) => {
      asked.push(options.path);
      return dispatch(options, handler);
    }),
  );
  try {
    await (await request(`${url}/shared`)).body.dump();
  } finally {
    undici.setGlobalDispatcher(shared);
  }
  assert.deepEqual(asked, ['/shared']);
});

test('a request fails with the errors of the package', async () => {
  const { ClientDestroyedError, InvalidArgumentError, RequestAbortedError, UndiciError } = undici.errors;
  await assert.rejects(request('ftp://somewhere/'), InvalidArgumentError);
  await assert.rejects(request(`${url}/`, { method: 'not a method' as 'GET' }), InvalidArgumentError);
  assert.throws(() => new Pool('nowhere'), TypeError);
  assert.throws(() => new Pool(url, { connections: -1 }), UndiciError);
  const pool = new Pool(url);
  const asked = pool.request({
    method: 'GET',
    path: '/',
    signal: AbortSignal.abort(new RequestAbortedError()),
  });
  await assert.rejects(asked, RequestAbortedError);
  await pool.destroy();
  await assert.rejects(pool.request({ method: 'GET', path: '/' }), ClientDestroyedError);
});

test('programs load only these parts of undici, and not the undici inside Node', () => {
  const [inside] = loadedBy('node:http').ofNode;
  assert.ok(inside, 'An import of node:http no longer makes Node load undici: remove platform/node-http.ts');
  for (const program of ['client/main.ts', 'fuse/main.ts', 'server/main.ts']) {
    const { ofNode, modules } = loadedBy(new URL(`../../${program}`, import.meta.url).href);
    assert.deepEqual(ofNode, [], program);
    const parts = modules.flatMap((path) => path.split('/node_modules/undici/').slice(1));
    assert.deepEqual(
      parts.filter((path) => NOT_NEEDED.test(path)),
      [],
      program,
    );
    assert.ok(
      parts.length > 10 && parts.length <= MODULES_MAX,
      `${program}: ${parts.length} modules of undici`,
    );
  }
});

/**
 * What a process that imports `specifier` has loaded: CommonJS modules of packages, and the undici modules of Node's
 * own.
 */
function loadedBy(specifier: string): { readonly modules: string[]; readonly ofNode: string[] } {
  const script = `
    import { createRequire } from 'node:module';
    await import(${JSON.stringify(specifier)});
    const modules = Object.keys(createRequire(${JSON.stringify(import.meta.url)}).cache);
    const ofNode = process.moduleLoadList.filter((name) => name.includes('undici'));
    console.log(JSON.stringify({ modules, ofNode }));`;
  return JSON.parse(
    execFileSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' }),
  );
}
