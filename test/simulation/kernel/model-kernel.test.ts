/**
 * Goal: the model of the kernel does what Linux does in the cases on which the mount relies.
 * Method: a mount of a volume in memory below it, in virtual time; requests are recorded.
 */
import assert from 'node:assert/strict';
import { constants } from 'node:fs';
import { test } from 'node:test';
import { mountVolume } from '../../../fuse/mount.ts';
import { MemoryBackend } from '../../fuse/memory-backend.ts';
import { VirtualTime } from '../cluster/virtual-time.ts';
import { outcomeOf } from './kernel-error.ts';
import { ModelKernel, type ModelKernelOptions } from './model-kernel.ts';
import { opcodeName } from './request-queue.ts';

const AGE_MS = 1_000;
const END_MS = 60_000;
const { O_CREAT, O_RDWR, O_WRONLY } = constants;

interface Scene {
  readonly kernel: ModelKernel;
  readonly backend: MemoryBackend;
  sleep(ms: number): Promise<void>;
  /** @returns requests since the last call, without those that listings and access control need */
  asked(): string[];
}

/** Runs `run` in a simulated process. @returns the hash of all events */
async function play(run: (scene: Scene) => Promise<void>, options: ModelKernelOptions = {}): Promise<string> {
  const time = new VirtualTime(1);
  const process = time.process('machine');
  let isDone = false;
  time.after(0, process, () => {
    const seen: string[] = [];
    const kernel = new ModelKernel(process, {
      ...options,
      seen: ({ opcode }) => {
        time.note(opcodeName(opcode));
        if (opcodeName(opcode) !== 'getxattr') seen.push(opcodeName(opcode));
      },
    });
    // The kernel may be short of memory before it has a mount.
    kernel.shrink();
    const backend = new MemoryBackend();
    const how = { world: process, directory: '/', source: 'test', limitMs: 20_000, xattrs: true };
    const played = async (): Promise<void> => {
      const mounted = await mountVolume(backend, kernel.transport, {
        ...how,
        ageMaxMs: AGE_MS,
        log: () => undefined,
      });
      await run({ kernel, backend, sleep: (ms) => process.sleep(ms), asked: () => seen.splice(0) });
      await mounted.unmount();
      assert.equal(kernel.client.queue.length, 0, 'Each request has its reply');
    };
    played().then(
      () => {
        isDone = true;
      },
      (error: Error) => time.fail(error),
    );
  });
  await time.run(END_MS, () => isDone);
  assert.ok(isDone, 'It ends');
  return time.traceHash;
}

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

test('each close flushes, the last one releases, and an unlinked file is forgotten then', async () => {
  await play(async ({ kernel, asked, sleep }) => {
    const [one, other] = [kernel.process(), kernel.process()];
    const f = await one.open('/f', O_CREAT | O_RDWR);
    const g = one.dup(f);
    await one.write(f, Buffer.from('hello'));
    asked();
    await one.close(f);
    assert.deepEqual(asked(), ['flush']);
    await other.unlink('/f');
    assert.equal(text(await one.pread(g, 9, 0)), 'hello');
    assert.deepEqual(
      asked().filter((name) => name !== 'getattr'),
      ['unlink', 'read'],
    );
    await one.close(g);
    await sleep(1);
    assert.deepEqual(asked(), ['flush', 'release', 'forget']);
  });
});

test('an exit flushes and releases descriptors in order; a child keeps those that it shares', async () => {
  await play(async ({ kernel, asked, sleep }) => {
    const parent = kernel.process();
    await parent.open('/f', O_CREAT | O_RDWR);
    const child = parent.fork();
    await parent.open('/g', O_CREAT | O_RDWR);
    asked();
    await parent.exit();
    await sleep(1);
    assert.deepEqual(asked(), ['flush', 'flush', 'release']);
    child.signal('SIGKILL');
    await sleep(1);
    assert.deepEqual(asked(), ['flush', 'release']);
    assert.deepEqual(await outcomeOf(child.stat('/f')), { errno: 'ESRCH' });
  });
});

test('attributes and names are queried after their time, and pages are read once', async () => {
  await play(async ({ kernel, backend, asked, sleep }) => {
    const process = kernel.process();
    const made = await process.open('/f', O_CREAT | O_WRONLY);
    await process.write(made, Buffer.from('one'));
    await process.close(made);
    await sleep(AGE_MS + 1);
    const f = await process.open('/f');
    for (const isFirst of [true, false]) {
      await process.pread(f, 3, 0);
      await process.stat('/f');
      const names = asked();
      if (!isFirst) assert.deepEqual(names, []);
    }
    backend.writeFromElsewhere('f', 'two!');
    assert.equal(text(await process.pread(f, 9, 0)), 'one');
    await sleep(AGE_MS + 1);
    asked();
    assert.equal(text(await process.pread(f, 9, 0)), 'two!');
    assert.deepEqual(asked(), ['getattr', 'read']);
  });
});

test('the name of a directory is looked up again after a change of its mode by path or descriptor', async () => {
  await play(async ({ kernel, asked }) => {
    const process = kernel.process();
    await process.mkdir('/d', 0o755);
    const d = await process.open('/d');
    for (const change of [() => process.chmod('/d', 0o700), () => process.fchmod(d, 0o750)]) {
      await process.stat('/d');
      await change();
      asked();
      await process.stat('/d');
      assert.deepEqual(asked(), ['lookup']);
    }
  });
});

test('a signal ends a wait for a lock, and the process if it does not catch the signal', async () => {
  await play(async ({ kernel, asked, sleep }) => {
    const [holder, waiter] = [kernel.process(), kernel.process()];
    const whole = { type: 'exclusive', start: 0n, end: 9n } as const;
    const held = await holder.open('/f', O_CREAT | O_RDWR);
    await holder.lock(held, whole, false);
    const wanted = await waiter.open('/f', O_RDWR);
    assert.deepEqual(await outcomeOf(waiter.lock(wanted, whole, false)), { errno: 'EAGAIN' });
    assert.equal((await waiter.lockHolder(wanted, whole))?.pid, holder.pid);
    waiter.caught.add('SIGINT');
    asked();
    const waits = outcomeOf(waiter.lock(wanted, whole, true));
    await sleep(50);
    waiter.signal('SIGINT');
    assert.deepEqual(await waits, { errno: 'EINTR' });
    assert.deepEqual(asked(), ['setlkw', 'interrupt']);
    const again = outcomeOf(waiter.lock(wanted, whole, true));
    await sleep(50);
    waiter.signal('SIGTERM');
    assert.deepEqual(await again, { errno: 'EINTR' });
    assert.ok(waiter.hasEnded);
    await sleep(1);
    assert.deepEqual(asked(), ['setlkw', 'interrupt', 'flush', 'release']);
  });
});

test('bytes written through a mapping are visible to readers at once, and to the file system after msync', async () => {
  await play(async ({ kernel, backend, asked }) => {
    const process = kernel.process();
    const f = await process.open('/f', O_CREAT | O_RDWR);
    await process.write(f, Buffer.from('hello'));
    // The mount's time of the write is known: otherwise its pages would be written and dropped.
    await process.pread(f, 9, 0);
    const mapping = await process.mmap(f);
    await mapping.write(0, Buffer.from('J'));
    assert.equal(text(await process.pread(f, 9, 0)), 'Jello');
    assert.deepEqual(await outcomeOf(mapping.read(4096, 1)), { errno: 'SIGBUS' });
    asked();
    await mapping.sync();
    assert.deepEqual(asked(), ['write', 'fsync']);
    assert.equal(backend.textAt(1, 'f'), 'Jello');
    await mapping.unmap();
  });
});

test('what is recalled while its answer is on the way is not valid', async () => {
  // The caller continues a while after the reply has arrived.
  await play(
    async ({ kernel, backend, sleep }) => {
      const process = kernel.process();
      const f = await process.open('/f', O_CREAT | O_WRONLY);
      await process.write(f, Buffer.from('one'));
      await process.close(f);
      kernel.shrink();
      const first = process.stat('/f');
      await sleep(30);
      const node = backend.inodeAt(1, 'f') ?? 0;
      backend.writeFromElsewhere('f', 'two!');
      await kernel.client.invalidateInode(node, 0, 0);
      await first;
      await sleep(AGE_MS);
      assert.equal((await process.stat('/f')).sizeBytes, 4);
    },
    { wakeMs: () => 20 },
  );
});
