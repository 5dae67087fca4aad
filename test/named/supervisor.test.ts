import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { leaseMomentAfter, leaseMomentNow } from '../../client/lease/lease-clock.ts';
import { exitCodeOf, SupervisedCommand } from '../../client/lease/supervised-command.ts';
import { systemWorld } from '../../world/system-world.ts';
import { until } from '../cluster/real-cluster.ts';

const TTL_MS = 4_000;
const folder = mkdtempSync(join(tmpdir(), 'leasehold-supervisor-'));
after(() => rmSync(folder, { recursive: true }));

const afterMs = (ms: number) => leaseMomentAfter(leaseMomentNow(systemWorld), ms);
const supervised = (script: string, end = afterMs(60_000)) =>
  new SupervisedCommand(systemWorld, ['sh', '-c', script], { ...process.env, FOLDER: folder }, TTL_MS, end);

/** @returns whether a process can still act */
function alive(pid: number): boolean {
  if (!existsSync(`/proc/${pid}/stat`)) return false;
  return /\) [^ZX]/.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
}

/** Seconds since the start of the machine. */
function uptimeOf(text: string): number {
  return Number(text.split(' ')[0]);
}

/** A command that cannot be asked to end, and says until when it has lived. */
const living = (name: string): string =>
  `trap "" TERM; while :; do cat /proc/uptime >> $FOLDER/${name}.lived; sleep 0.02; done`;

/** @returns a function that checks that the command of `living` did not live when a lease that begins now had ended */
function endsInTime(name: string): () => void {
  const end = uptimeOf(readFileSync('/proc/uptime', 'utf8')) + TTL_MS / 1_000;
  return () => {
    const lived = readFileSync(join(folder, `${name}.lived`), 'utf8')
      .split('\n')
      .slice(0, -1);
    const last = uptimeOf(lived.at(-1) ?? assert.fail('It has lived'));
    assert.ok(last < end, `It lived ${last - end} s after the end of its lease`);
  };
}

function childrenOf(pid: number): number[] {
  const threads = readdirSync(`/proc/${pid}/task`);
  const texts = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8'));
  return texts.flatMap((text) => text.split(' ').filter((word) => word !== '')).map(Number);
}

test('a command ends by itself: its code is passed on', async () => {
  assert.deepEqual(await supervised('exit 5').ended, {
    kind: 'ended',
    code: 5,
    signal: null,
    expired: false,
  });
});

test('a command that cannot be started', async () => {
  const end = await new SupervisedCommand(systemWorld, ['./none'], process.env, TTL_MS, afterMs(60_000))
    .ended;
  assert.ok(end.kind === 'failed');
  assert.equal(exitCodeOf(end), 127);
});

test('a command that ignores SIGTERM is killed when its lease is not extended', async () => {
  const end = await supervised('trap "" TERM; while :; do sleep 0.02; done', afterMs(TTL_MS)).ended;
  assert.deepEqual(end, { kind: 'ended', code: null, signal: 'SIGKILL', expired: true });
});

test('a command that handles SIGTERM has the time to clean up', async () => {
  const file = join(folder, 'cleaned');
  const end = await supervised(
    'trap "echo done > $FOLDER/cleaned; exit 9" TERM; while :; do sleep 0.02; done',
    afterMs(TTL_MS),
  ).ended;
  assert.deepEqual(end, { kind: 'ended', code: 9, signal: null, expired: true });
  assert.ok(existsSync(file));
});

test('a command whose lease has already ended is not started', async () => {
  const end = await supervised('echo x > $FOLDER/begun', afterMs(0)).ended;
  assert.deepEqual(end, { kind: 'ended', code: null, signal: null, expired: true });
  assert.ok(!existsSync(join(folder, 'begun')));
});

test('an extension that arrived in time counts, even if the supervisor was suspended beyond the deadline before it', async () => {
  const first = afterMs(TTL_MS);
  const command = supervised(
    'echo $PPID > $FOLDER/supervisor; while [ ! -e $FOLDER/go ]; do sleep 0.02; done; exit 4',
    first,
  );
  const file = join(folder, 'supervisor');
  await until('the command runs', async () => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'));
  const supervisor = Number(readFileSync(file, 'utf8'));
  process.kill(supervisor, 'SIGSTOP');
  command.extend(afterMs(60_000));
  await until(
    'the first deadline is over',
    async () => leaseMomentNow(systemWorld).monotonicMs > first.monotonicMs,
  );
  process.kill(supervisor, 'SIGCONT');
  process.kill(supervisor, 0);
  await until('the command may end', async () => {
    assert.ok(alive(supervisor));
    return leaseMomentNow(systemWorld).monotonicMs > first.monotonicMs + 300;
  });
  writeFileSync(join(folder, 'go'), '');
  assert.deepEqual(await command.ended, { kind: 'ended', code: 4, signal: null, expired: false });
});

test('processes that a command leaves in its process group end with it', async () => {
  await supervised('sleep 1000 & echo $! > $FOLDER/left').ended;
  const left = Number(readFileSync(join(folder, 'left'), 'utf8'));
  assert.ok(left > 1);
  await until('the process has ended', async () => !alive(left));
});

test('a signal reaches the whole group', async () => {
  const command = supervised('trap "exit 6" INT; echo $$ > $FOLDER/ready; while :; do sleep 0.02; done');
  await until('it is ready', async () => existsSync(join(folder, 'ready')));
  command.signal('SIGINT');
  assert.deepEqual(await command.ended, { kind: 'ended', code: 6, signal: null, expired: false });
});

test('a command whose lease is lost is asked to end at once, and killed soon, however long the lease would have lasted', async () => {
  const ready = join(folder, 'deaf');
  const deaf = supervised('trap "" TERM; echo > $FOLDER/deaf; while :; do sleep 0.02; done');
  await until('it is ready', async () => existsSync(ready));
  deaf.stop(100);
  deaf.extend(afterMs(60_000));
  assert.deepEqual(await deaf.ended, { kind: 'ended', code: null, signal: 'SIGKILL', expired: true });
  const heeding = supervised('trap "exit 8" TERM; echo > $FOLDER/heeds; while :; do sleep 0.02; done');
  await until('it is ready', async () => existsSync(join(folder, 'heeds')));
  heeding.stop(60_000);
  assert.deepEqual(await heeding.ended, { kind: 'ended', code: 8, signal: null, expired: true });
});

test("a supervisor that ended without a report after its command's deadline has ended the command", async () => {
  const file = join(folder, 'wordless');
  const command = supervised('echo $PPID $$ > $FOLDER/wordless; trap "" TERM; while :; do sleep 0.02; done');
  await until('it is ready', async () => existsSync(file) && readFileSync(file, 'utf8').includes('\n'));
  const [supervisor = 0, pid = 0] = readFileSync(file, 'utf8').split(' ').map(Number);
  await until('its process is known', async () => command.commandPid === pid);
  process.kill(supervisor, 'SIGSTOP');
  command.stop(0);
  process.kill(supervisor, 'SIGKILL');
  assert.deepEqual(await command.ended, { kind: 'ended', code: null, signal: 'SIGKILL', expired: true });
  await until('the command has ended', async () => !alive(pid));
});

test('a lease that is lost in its last part leaves no more time than it has', async () => {
  const assertInTime = endsInTime('last');
  const command = supervised(living('last'), afterMs(TTL_MS));
  await until('it is ready', async () => existsSync(join(folder, 'last.lived')));
  command.stop(60_000);
  assert.deepEqual(await command.ended, { kind: 'ended', code: null, signal: 'SIGKILL', expired: true });
  assertInTime();
});

test('a supervisor that is suspended beyond the deadline is replaced: the command is killed before its lease ends', async () => {
  const assertInTime = endsInTime('asleep');
  const command = supervised(`echo $PPID $$ > $FOLDER/asleep; ${living('asleep')}`, afterMs(TTL_MS));
  const file = join(folder, 'asleep');
  await until('the command runs', async () => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'));
  const [supervisor = 0, pid = 0] = readFileSync(file, 'utf8').split(' ').map(Number);
  process.kill(supervisor, 'SIGSTOP');
  assert.deepEqual(await command.ended, { kind: 'ended', code: null, signal: 'SIGKILL', expired: true });
  assert.ok(!alive(supervisor));
  await until('the process has ended', async () => !alive(pid));
  assertInTime();
});

test("so is a supervisor that was stopped before it could report its command's process", async () => {
  const before = new Set(childrenOf(process.pid));
  const assertInTime = endsInTime('untold');
  const command = supervised(living('untold'), afterMs(TTL_MS));
  const supervisor =
    childrenOf(process.pid).find((pid) => !before.has(pid)) ?? assert.fail('There is a supervisor');
  while (childrenOf(supervisor).length === 0) await turn();
  process.kill(supervisor, 'SIGSTOP');
  const [pid = 0] = childrenOf(supervisor);
  assert.deepEqual(await command.ended, { kind: 'ended', code: null, signal: 'SIGKILL', expired: true });
  await until('both have ended', async () => !alive(pid) && !alive(supervisor));
  assertInTime();
});

test('a supervisor that is killed takes its command with it', async () => {
  const command = supervised('echo $PPID $$ > $FOLDER/orphan; while :; do sleep 0.02; done');
  const file = join(folder, 'orphan');
  await until('the command runs', async () => existsSync(file) && readFileSync(file, 'utf8').endsWith('\n'));
  const [supervisor = 0, pid = 0] = readFileSync(file, 'utf8').split(' ').map(Number);
  // A supervisor that had no time to report its command's process takes no command with it.
  await until('the supervisor has reported', async () => command.commandPid === pid);
  process.kill(supervisor, 'SIGKILL');
  assert.deepEqual(await command.ended, { kind: 'unsupervised', killed: true });
  await until('the process has ended', async () => !alive(pid));
});

test('the last report of a supervisor counts, even if this process was suspended when it arrived and has to send something itself', async () => {
  const command = supervised('echo > $FOLDER/short; sleep 0.2; exit 3');
  await until('the command runs', async () => existsSync(join(folder, 'short')));
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
  command.stop(100);
  command.extend(afterMs(60_000));
  command.signal('SIGINT');
  assert.deepEqual(await command.ended, { kind: 'ended', code: 3, signal: null, expired: false });
});
