import type { Logger } from 'pino';
import type { Incarnation, ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import { REPLACEMENTS_VERSION } from '../../catalog/versions.ts';
import type { Clock } from '../process/clock.ts';
import type { Placement } from '../process/placement.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { FileStore } from '../storage/store.ts';
import type { Counter, MetricsRegistry } from '../telemetry/metrics.ts';
import type { Traffic } from '../telemetry/traffic.ts';
import type { ClusterTransport } from '../transport/transport.ts';
import { CreateWithContents, type CreateWithContentsParts } from './create-with-contents.ts';
import { FileNumbers } from './file-numbers.ts';
import { FirstContents } from './first-contents.ts';
import type { ReplicaHost } from './replica-host.ts';
import { StorageSettings } from './storage-settings.ts';
import { WholeFiles } from './whole-files.ts';

export interface CreationsParts {
  readonly self: ServerId;
  readonly incarnation: Incarnation;
  readonly world: World;
  readonly clock: Clock;
  readonly log: Logger;
  readonly host: ReplicaHost;
  readonly store: Pick<FileStore, 'flush'>;
  readonly traffic: Traffic;
  readonly metrics: MetricsRegistry;
  readonly placement: Placement;
  readonly gateway: Gateway;
  isConnected(server: ServerId): boolean;
  transport(): Pick<ClusterTransport, 'call' | 'commandsVersion' | 'peers'>;
}

export interface Creations {
  readonly contents: FirstContents;
  readonly files: CreateWithContents;
  readonly wholeFiles: WholeFiles;
}

/** @returns whether all peers are known to have `replace-with-contents`; a disconnected peer's release is unknown */
export function doAllPeersKnowReplace(
  transport: Pick<ClusterTransport, 'commandsVersion' | 'peers'>,
): boolean {
  return transport.peers.every((peer) => (transport.commandsVersion(peer) ?? 0) >= REPLACEMENTS_VERSION);
}

export function creationsOf(parts: CreationsParts): Creations {
  const { self, incarnation, world, clock, log, host, store, traffic, placement, gateway } = parts;
  const { metrics, transport, isConnected } = parts;
  const outcomes = outcomesIn(metrics);
  const query: Gateway['queryCatalog'] = (asked, options) => gateway.queryCatalog(asked, options);
  const command: Gateway['command'] = (one, name, options) => gateway.command(one, name, options);
  const voidNumbers: CreateWithContentsParts['voidNumbers'] = (owner, inodes) => {
    gateway.durably({ kind: 'void-inodes', owner, inodes: [...inodes] }).catch((error: unknown) => {
      // The numbers become void after a while anyway.
      log.debug(
        { inodes, err: error },
        'cannot void the numbers of refused files: their contents stay until the numbers expire',
      );
    });
  };
  const isOutdated: Placement['isOutdated'] = (...members) => placement.isOutdated(...members);
  const catalogOf = (inode: number) => gateway.ofInode(inode).number;
  const settings = new StorageSettings({ clock, catalogOf, query });
  const contents = new FirstContents({
    ...{ self, incarnation, world, log, host, store, isConnected },
    call: (...call) => transport().call(...call),
  });
  const numbers = new FileNumbers({
    ...{ self, clock, settings, catalogOf, command },
    choose: (...wanted) => placement.choose(...wanted),
  });
  const shared = { clock, contents, numbers, settings, host, traffic, outcomes, isOutdated };
  return {
    contents,
    files: new CreateWithContents({
      ...{ ...shared, catalogOf, query, command, voidNumbers },
      refreshCatalogs: () => gateway.services.catalogs.refresh(),
    }),
    wholeFiles: new WholeFiles({
      ...{ ...shared, world },
      isUnderstood: () => doAllPeersKnowReplace(transport()),
      catalogOf,
      flushCatalogOf: (inode) => gateway.ofInode(inode).flush(),
    }),
  };
}

/** Deprecated labels, by outcome. */
const EARLIER_LABELS: Readonly<Record<string, string>> = { created: 'born', 'not-created': 'unborn' };

/** Registers the counter of files created with contents, and counts also under its deprecated name and labels. */
function outcomesIn(metrics: MetricsRegistry): Counter {
  const name = 'leasehold_creations_with_contents_total';
  const outcomes = metrics.counter(name, 'Files created with contents, by outcome', ['outcome']);
  const earlier = metrics.counter('leasehold_births_total', `Deprecated: ${name}`, ['outcome']);
  return {
    add: (amount = 1, { outcome = 'created' } = {}) => {
      outcomes.add(amount, { outcome });
      earlier.add(amount, { outcome: EARLIER_LABELS[outcome] ?? outcome });
    },
  };
}
