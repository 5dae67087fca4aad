import Database from 'better-sqlite3';
import type { ServerId } from '../../base/ids.ts';
import { executeRequests } from '../../catalog/batch.ts';
import { type CatalogDatabase, ensureSchema } from '../../catalog/schema.ts';
import { outcomeResult } from '../../catalog/sessions.ts';
import type { Command, CommandResults } from '../../wire/catalog-api.ts';

export const SERVERS = ['s1', 's2', 's3'] as ServerId[];
const OWNER = 1;
const FILES_PER_COMMAND = 100;
const FILES_PER_DIRECTORY = 10_000;
const OBJECT_BYTES = 131_072;

/** A catalog in memory that the catalog's own commands change. */
export class FilledCatalog {
  readonly db: CatalogDatabase = new Database(':memory:');
  #number = 0;

  /** A volume `main` with files of 4 KiB on three servers, `FILES_PER_DIRECTORY` in each directory. */
  constructor(files: number) {
    ensureSchema(this.db);
    for (const id of SERVERS) {
      const disk = { storageId: id, freeBytes: 50, totalBytes: 100 };
      this.run({ kind: 'server-register', id, url: `http://${id}:7401`, ...disk });
    }
    const { volume } = this.run({
      kind: 'volume-create',
      name: 'main',
      replicas: 3,
      objectBytes: OBJECT_BYTES,
    });
    for (let done = 0; done < files; done += FILES_PER_DIRECTORY) {
      const place = { parent: volume.root, name: `d${done}` };
      const { attributes } = this.run({ kind: 'make-directory', place, mode: 0o755, uid: 0, gid: 0 });
      this.#fillDirectory(attributes.inode, Math.min(FILES_PER_DIRECTORY, files - done));
    }
  }

  run<Kind extends Command['kind']>(
    command: Extract<Command, { kind: Kind }> & { kind: Kind },
  ): CommandResults[Kind] {
    this.#number += 1;
    const number = this.#number;
    this.db.exec('BEGIN');
    const context = { nowNs: BigInt(number), placement: () => SERVERS };
    const { outcomes } = executeRequests(this.db, number, [{ session: OWNER, number, command }], context);
    this.db.exec('COMMIT');
    const [outcome] = outcomes;
    if (outcome === undefined) throw new Error(`"${command.kind}" has no outcome`);
    return outcomeResult(outcome) as CommandResults[Kind];
  }

  #fillDirectory(parent: number, files: number): void {
    for (let done = 0; done < files; done += FILES_PER_COMMAND) {
      const count = Math.min(FILES_PER_COMMAND, files - done);
      const { first } = this.run({ kind: 'reserve-inodes', owner: OWNER, count, members: [SERVERS] });
      this.run({
        kind: 'bear',
        owner: OWNER,
        replicas: SERVERS,
        objectBytes: OBJECT_BYTES,
        files: Array.from({ length: count }, (_, index) => ({
          ...{ parent, name: `f${done + index}`, inode: first + index },
          ...{ mode: 0o644, uid: 0, gid: 0, sizeBytes: 4096, contents: { epoch: 1, seq: 1 } },
        })),
      });
    }
  }
}

/** Processor time of this process so far. */
export function processorUs(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}
