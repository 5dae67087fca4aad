import { strict as assert } from 'node:assert';
import fs from 'node:fs';
import Database from 'better-sqlite3';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { Epoch } from '../../replica/epoch.ts';
import { CatalogStore } from '../../server/storage/catalog-store.ts';
import { decodeDescription } from '../../server/storage/catalog-transfer.ts';
import type { Command } from '../../wire/catalog-api.ts';
import { systemWorld } from '../../world/system-world.ts';
import { SERVERS } from './fixture.ts';

/** A process that changes a catalog until its parent kills it, or it kills itself at a given step. */

const VIEW = { number: 1, members: SERVERS.slice(0, 3) };
const [task, folder = '', ...rest] = process.argv.slice(2);

function epoch(counter: number): Epoch {
  return { counter, server: 's1' as ServerId, incarnation: 7 as Incarnation };
}

async function write(role: string): Promise<void> {
  const store = await CatalogStore.open({ world: systemWorld, folder, view: VIEW });
  await store.promise(epoch(1));
  await store.install(epoch(1), 0, null);
  // A primary in its own folder executes commands and passes them to a backup.
  const other = `${folder}-other`;
  fs.mkdirSync(other);
  const primary =
    role === 'primary' ? store : await CatalogStore.open({ world: systemWorld, folder: other, view: VIEW });
  if (primary !== store) {
    await primary.promise(epoch(1));
    await primary.install(epoch(1), 0, null);
  }
  for (let seq = 1; ; seq++) {
    const commands: Command[] =
      seq === 1
        ? [{ kind: 'volume-create', name: 'main', replicas: 3, objectBytes: 4096 }]
        : [`a${seq}`, `b${seq}`].map((path) => ({
            kind: 'make-directory',
            place: { volume: 'main', path },
            mode: 0o755,
            uid: 0,
            gid: 0,
          }));
    primary.begin();
    const requests = commands.map((command, index) => ({ session: seq, number: index + 1, command }));
    const { body } = primary.execute(requests, { nowNs: 1n, placement: () => [] });
    assert(body !== null);
    await primary.finish(epoch(1), seq);
    if (primary !== store) await store.apply(epoch(1), seq, body);
    fs.writeSync(1, `${seq}\n`);
  }
}

/** Installs another folder's state and dies at the given step of the installation's disk operations. */
async function install(source: string, way: string, dieAt: number): Promise<void> {
  const store = await CatalogStore.open({ world: systemWorld, folder, view: VIEW });
  const from = await CatalogStore.open({ world: systemWorld, folder: source, view: VIEW });
  await store.promise(epoch(2));
  async function* chunks(): AsyncGenerator<Uint8Array> {
    const { id, bytes } = await from.snapshot();
    yield await from.readSnapshot(id, 0, bytes);
    await from.closeSnapshot(id);
  }
  const tail = from.tail(decodeDescription(store.describe()).last, 1 << 20);
  assert(tail !== null);
  const staged = way === 'tail' ? store.stageTail(tail) : await store.stageSnapshot(chunks());
  await from.close();

  let step = 0;
  const die = (): void => {
    step += 1;
    if (step === dieAt) process.kill(process.pid, 'SIGKILL');
  };
  // Each step is the moment before one disk operation.
  for (const name of ['renameSync', 'fsyncSync', 'openSync'] as const) {
    const real = fs[name] as (...args: unknown[]) => unknown;
    Object.assign(fs, {
      [name]: (...args: unknown[]) => {
        die();
        return real(...args);
      },
    });
  }
  for (const name of ['exec', 'pragma', 'close'] as const) {
    const real = Database.prototype[name] as (...args: unknown[]) => unknown;
    Object.assign(Database.prototype, {
      [name](this: unknown, ...args: unknown[]) {
        die();
        return real.apply(this, args);
      },
    });
  }
  await store.install(epoch(2), staged.position.seq, staged);
  // The parent kills this process: an orderly exit would close the database.
  process.exit(0);
}

if (task === 'write') await write(rest[0] ?? 'primary');
else if (task === 'install') await install(rest[0] ?? '', rest[1] ?? '', Number(rest[2]));
else throw new Error(`Unknown task ${task}`);
