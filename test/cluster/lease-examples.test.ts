import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import type { LeaseQueryAnswer } from '../../wire/named-lease-api.ts';
import { ask } from '../http/ask.ts';
import { assertExclusive, assertSerial, EXAMPLES, Example, historyOf, type Report } from './lease-example.ts';
import { RealCluster, until } from './real-cluster.ts';

/**
 * Goal: the clients and recipes of docs/examples/leases exclude each other, also while the server that granted a lease
 * is killed, and while a holder is stopped until its lease is over: then the resource refuses it.
 * Method: processes of the examples compete on a real cluster. Two records prove it: what each process relied on by its
 * own clock, and the order in which the resource accepted requests.
 */
/** A renewal has two seconds, which is enough on a busy machine. */
const TTL_MS = 4_000;
const SKEW_MS = 100;
const FLAGS = ['--named-lease-max', `${TTL_MS}ms`];
const run = promisify(execFile);

function missing(...programs: readonly string[]): string | false {
  for (const program of programs) {
    try {
      execFileSync('which', [program], { stdio: 'pipe' });
    } catch {
      return `${program} is not installed`;
    }
  }
  return false;
}

const skip = missing('python3');

describe('examples of named leases', { skip }, () => {
  let cluster: RealCluster;
  let folder: string;
  const running = new Set<Example>();
  let resources = 0;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'leasehold-examples-'));
    cluster = await RealCluster.start({ clockSkew: `${SKEW_MS}ms`, flags: FLAGS });
  });
  afterEach(() => {
    for (const example of running) example.kill();
    running.clear();
  });
  after(async () => {
    await cluster?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  function start(
    owner: string,
    command: string,
    argv: readonly string[],
    cwd = join(EXAMPLES, 'python'),
  ): Example {
    const example = new Example(owner, command, argv, cwd);
    running.add(example);
    return example;
  }

  /** Starts the protected resource. @returns its URL */
  async function resource(): Promise<string> {
    const data = join(folder, `resource-${++resources}.db`);
    const words = ['fenced_resource.py', '--port', '0', '--data', data];
    const example = start('resource', 'python3', words);
    await until('the resource listens', async () => {
      example.assertRuns();
      return example.reports.length > 0;
    });
    return (example.reports[0] as unknown as { url: string }).url;
  }

  const options = (owner: string, at: string): string[] => [
    ...['--servers', cluster.urls.join(','), '--resource', at],
    ...['--owner', owner, '--ttl-ms', `${TTL_MS}`],
  ];
  const python = (owner: string, script: string, at: string, more: readonly string[]): Example =>
    start(owner, 'python3', [script, ...options(owner, at), ...more]);

  /** Kills the server that granted the lease. @returns its id */
  async function killGranting(hold: Report | undefined): Promise<string> {
    const id = cluster.ids.find((one) => cluster.url(one) === hold?.server);
    assert.ok(id !== undefined, `${hold?.server} is a server`);
    await cluster.kill(id);
    return id;
  }

  /** Starts the killed server, and waits until all servers vote again. */
  async function restart(id: string): Promise<void> {
    await cluster.restart(id);
    await until('all servers vote', async () => {
      const answers = await Promise.all(cluster.urls.map((url) => ask(url, 'GET', '/v1/leases/voting')));
      return answers.every(({ status }) => status === 200);
    });
  }

  async function acts(at: string, owner: string): Promise<number> {
    return (await historyOf(at)).filter(({ sender, accepted }) => accepted && sender === owner).length;
  }

  /** When the lease ends at the earliest and latest, by this process's clock, as a majority knows it. */
  async function endOf(name: string): Promise<readonly [number, number]> {
    const id = cluster.ids.find((one) => cluster.isRunning(one)) ?? '';
    const askedMs = performance.now();
    const answer = await ask(cluster.url(id), 'GET', `/v1/leases/${encodeURIComponent(name)}`);
    assert.equal(answer.status, 200, answer.text);
    const { remainingMs } = JSON.parse(answer.text) as LeaseQueryAnswer;
    return [askedMs + remainingMs, performance.now() + remainingMs];
  }

  /**
   * `first` gets its lease alone and never stops acting, nor reads its clock: it is killed the server that granted its
   * lease, later it is stopped until `others` have taken over.
   */
  async function play(at: string, first: Example, startOthers: () => Example[]): Promise<void> {
    await until('the first acts', async () => first.hold !== undefined && (await acts(at, first.owner)) > 2);
    const tokens = first.hold?.tokens ?? {};
    const [name = ''] = Object.keys(tokens);
    const [, endMs] = await endOf(name);
    const killed = await killGranting(first.hold);
    await until('another server has renewed the lease', async () => (await endOf(name))[0] > endMs);
    assert.equal(first.reports.length, 1, 'It is the same hold');

    const others = startOthers();
    first.signal('SIGSTOP');
    await until('others act with a larger token of the same lease', async () => {
      for (const other of others) other.assertRuns();
      const history = await historyOf(at);
      return history.some((act) =>
        Object.entries(tokens).some(([name, token]) => (act.tokens[name] ?? 0) > token),
      );
    });
    first.signal('SIGCONT');
    await until('the resource refuses the first', async () => first.count('refused') === 1);
    await until('each of the others had its turn', async () => {
      for (const other of others) other.assertRuns();
      return others.every((other) => other.count('acquired') > 1);
    });
    const all = [first, ...others];
    await Promise.all(all.map((one) => one.stop()));
    for (const one of all) running.delete(one);

    const history = await historyOf(at);
    assert.ok(
      history.some(({ sender, accepted }) => sender === first.owner && !accepted),
      'The fence was needed',
    );
    assert.ok(assertSerial(history) > others.length);
    assert.ok(assertExclusive(all) > others.length);
    await restart(killed);
  }

  const careless = ['--careless', '--acts', '1000000', '--rounds', '1'];

  test('leader election', async () => {
    const at = await resource();
    const first = python('first', 'leader.py', at, careless);
    await play(at, first, () =>
      ['a', 'b', 'c'].map((owner) => python(owner, 'leader.py', at, ['--address', owner])),
    );
  });

  test('semaphore', async () => {
    const at = await resource();
    const first = python('first', 'semaphore.py', at, careless);
    await play(at, first, () => ['a', 'b', 'c'].map((owner) => python(owner, 'semaphore.py', at, [])));
    const names = new Set((await historyOf(at)).flatMap(({ tokens }) => Object.keys(tokens)));
    assert.deepEqual([...names].sort(), ['examples/semaphore/0', 'examples/semaphore/1']);
  });

  test('read-write lock', async () => {
    const at = await resource();
    const first = python('first', 'read_write_lock.py', at, ['--mode', 'write', ...careless]);
    await play(at, first, () =>
      ['read', 'read', 'write'].map((mode, place) =>
        python(`${mode} ${place}`, 'read_write_lock.py', at, ['--mode', mode]),
      ),
    );
  });

  test('clients in Python, Go and Java exclude each other', async (t) => {
    const at = await resource();
    const python3 = python('python', 'leader.py', at, []);
    const all = [python3];
    if (missing('go') === false) {
      const program = join(folder, 'leader');
      await run('go', ['build', '-o', program, '.'], { cwd: join(EXAMPLES, 'go') });
      all.push(start('go', program, options('go', at)));
    } else t.diagnostic('go is not installed');
    if (missing('javac', 'java') === false) {
      const sources = ['Json', 'Moment', 'Lease', 'LeaseClient', 'Leader'].map((name) => `${name}.java`);
      const java = join(EXAMPLES, 'java');
      await run('javac', ['-d', join(folder, 'classes'), ...sources], { cwd: java });
      all.push(start('java', 'java', ['-cp', join(folder, 'classes'), 'Leader', ...options('java', at)]));
    } else t.diagnostic('a JDK is not installed');
    if (all.length === 1) {
      t.skip('neither go nor javac is installed');
      await python3.stop();
      return;
    }
    const turns = async (): Promise<void> => {
      const before = new Map(all.map((one) => [one, one.count('acquired')]));
      await until('each has held the lease twice more', async () => {
        for (const one of all) one.assertRuns();
        return all.every((one) => one.count('acquired') >= (before.get(one) ?? 0) + 2);
      });
    };
    await turns();
    const killed = await killGranting(python3.hold);
    await turns();
    await Promise.all(all.map((one) => one.stop()));
    assert.ok(assertSerial(await historyOf(at)) > 2 * all.length);
    assert.ok(assertExclusive(all) > 2 * all.length);
    await restart(killed);
  });
});
