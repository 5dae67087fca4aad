import assert from 'node:assert/strict';
import type { ServerId } from '../../base/ids.ts';
import type { CommandContext } from '../../catalog/command.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { chooseServers } from '../../server/process/placement.ts';
import type { CommandOf } from '../../wire/catalog-api.ts';
import type { CatalogReport, ListedCatalog } from '../../wire/volume-catalogs.ts';
import { Catalog, SERVERS } from './fixture.ts';

export const MEMBERS = ['s1', 's2', 's3'];

export function registration(id: string): CommandOf<'server-register'> {
  const room = { storageId: `store of ${id}`, freeBytes: 10, totalBytes: 100 };
  return {
    kind: 'server-register',
    id,
    url: `http://${id}:7401`,
    commandsVersion: COMMANDS_VERSION,
    ...room,
  };
}

export function creation(
  name: string,
  more: Partial<CommandOf<'catalog-create'>> = {},
): CommandOf<'catalog-create'> {
  return { kind: 'catalog-create', name, members: MEMBERS, replicas: 3, objectBytes: 4096, ...more };
}

/** A root catalog with five servers. */
export class Root extends Catalog {
  readonly unreachable = new Set<string>();
  #choices = 0;
  override readonly context: CommandContext = {
    nowNs: 0n,
    placement: (count, servers, _required, loads) => {
      const candidates = servers.map(({ id, zone, freeBytes, totalBytes }) => {
        const known = { reachable: !this.unreachable.has(id), registered: true };
        return { id: id as ServerId, zone, freeBytes, totalBytes, ...known };
      });
      return chooseServers(count, candidates, this.#choices++, [], loads);
    },
  };

  constructor() {
    super();
    for (const id of SERVERS) this.run(registration(id));
  }

  create(name: string): ListedCatalog {
    return this.run(creation(name)).catalog;
  }

  /** A volume whose catalog has begun. */
  ready(name: string): ListedCatalog {
    const { number } = this.create(name);
    this.report(number, { kind: 'created' });
    return this.row(number);
  }

  remove(name: string): ListedCatalog {
    const { catalog } = this.run({ kind: 'volume-remove', name });
    assert.ok(catalog !== undefined);
    return catalog;
  }

  report(number: number, report: CatalogReport): void {
    this.run({ kind: 'catalog-report', number, report });
  }

  setState(id: string, state: 'in' | 'draining'): number {
    this.run({ kind: 'server-state', id, state });
    return this.since(id);
  }

  since(id: string): number {
    const listed = this.query({ kind: 'catalogs' }).servers.find((server) => server.id === id);
    assert.ok(listed !== undefined);
    return listed.since;
  }

  get version(): number {
    return this.query({ kind: 'catalogs' }).version;
  }

  row(number: number): ListedCatalog {
    const row = this.query({ kind: 'catalogs' }).catalogs.find((one) => one.number === number);
    assert.ok(row !== undefined);
    return row;
  }

  /** The report leaves the list as it is. */
  ignored(number: number, report: CatalogReport): void {
    const before = this.query({ kind: 'catalogs' });
    this.report(number, report);
    assert.deepEqual(this.query({ kind: 'catalogs' }), before, JSON.stringify(report));
  }
}
