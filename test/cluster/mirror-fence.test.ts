/**
 * Goal: what a mirror sent before it was stopped, and what arrives when another process is the mirror, changes nothing.
 * Method: the first mirror reaches the target through a proxy, which holds a removal back while the process is stopped,
 * and delivers it when a second mirror has made the next copy. The name that it removes is a new file by then.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { ClusterClient } from '../../client/cluster/cluster-client.ts';
import { sessionOfWriter } from '../../client/mirror/mirror-names.ts';
import { systemWorld } from '../../world/system-world.ts';
import { LAUNCHER, runCli } from '../client/run-cli.ts';
import { RealCluster, until } from './real-cluster.ts';
import { treeText } from './tree-text.ts';

const [near, far] = await Promise.all([RealCluster.start({ servers: 1 }), RealCluster.start({ servers: 1 })]);
after(() => Promise.all([near.stop(), far.stop()]));
const [nearClient, farClient] = [near, far].map(
  ({ urls }) => new ClusterClient({ world: systemWorld, servers: urls }),
) as [ClusterClient, ClusterClient];
after(() => Promise.all([nearClient.close(), farClient.close()]));
const env = { LEASEHOLD_SERVERS: near.urls.join(',') };

/** Forwards connections to a server, up to a request that contains a text: that and later ones wait for `deliver`. */
class HoldingProxy {
  readonly #port: number;
  readonly #text: string;
  readonly #held: Buffer[] = [];
  readonly #server = createServer((client) => this.#accept(client));
  #isOver = false;

  constructor(port: number, text: string) {
    this.#port = port;
    this.#text = text;
  }

  async listen(): Promise<string> {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get isHolding(): boolean {
    return this.#held.length > 0;
  }

  /** @returns the answers to the requests that were held back */
  async deliver(): Promise<string[]> {
    this.#isOver = true;
    return Promise.all(
      this.#held.map(async (request) => {
        const server = connect(this.#port, '127.0.0.1');
        server.end(request);
        return text(server);
      }),
    );
  }

  close(): void {
    this.#server.close();
  }

  #accept(client: Socket): void {
    const server = connect(this.#port, '127.0.0.1');
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const)
      from.on('error', () => to.destroy()).on('close', () => to.destroy());
    server.on('data', (bytes) => client.write(bytes));
    client.on('data', (bytes) => {
      if (!this.#isOver && (this.isHolding || bytes.includes(this.#text))) this.#held.push(bytes);
      else server.write(bytes);
    });
  }
}

async function put(path: string, input: string): Promise<void> {
  const { code, stderr } = await runCli(['put', '-', `main:${path}`], { env, input });
  assert.equal(code, 0, stderr);
}

async function mirrored(...words: string[]): Promise<string> {
  const { code, stderr } = await runCli(['mirror', 'main', '--to', far.urls.join(','), ...words], { env });
  assert.equal(code, 0, stderr);
  return stderr;
}

test('late requests of a stopped mirror change nothing in the copy that another one makes', async (t) => {
  await Promise.all([near.createVolume('main'), far.createVolume('main')]);
  for (const path of ['/a', '/b']) await put(path, 'first');
  await mirrored('--once');
  const proxy = new HoldingProxy(far.port('s1'), '"kind":"unlink"');
  t.after(() => proxy.close());
  const to = await proxy.listen();
  assert.equal((await runCli(['rm', 'main:/a'], { env })).code, 0);

  const stopped = spawn(process.execPath, [LAUNCHER, 'mirror', 'main', '--to', to, '--every', '100ms'], {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  t.after(() => stopped.kill('SIGKILL'));
  let said = '';
  stopped.stderr.setEncoding('utf8').on('data', (words: string) => {
    said += words;
  });
  await until('the removal is on its way', async () => proxy.isHolding);
  stopped.kill('SIGSTOP');
  for (const path of ['/a', '/b']) await put(path, 'second');
  await mirrored('--once');
  const copy = await treeText(farClient, 'main');
  assert.deepEqual(copy, await treeText(nearClient, 'main'));

  const answers = await proxy.deliver();
  assert.match(answers.join('\n'), /"code":"session-expired"/);
  assert.deepEqual(await treeText(farClient, 'main'), copy, 'The new file has the name of the removed one');

  stopped.kill('SIGCONT');
  await put('/c', 'third');
  await until('the first process continues', async () => {
    await farClient.resolve('main', '/c');
    return true;
  });
  stopped.kill('SIGTERM');
  await once(stopped, 'exit');
  assert.doesNotMatch(said, /removed [0-9]+ changes/);
  await mirrored('--once');
  assert.deepEqual(await treeText(farClient, 'main'), await treeText(nearClient, 'main'));
  const { snapshots } = await farClient.query({ kind: 'snapshots', volume: 'main' });
  assert.deepEqual(
    snapshots.filter(({ name }) => sessionOfWriter(name) !== null),
    [],
    'The last process has removed its mark and those before',
  );
});
