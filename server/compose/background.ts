import type { FileId, ServerId } from '../../base/ids.ts';
import type { Address } from '../config/address.ts';
import { paramsHash } from '../config/config.ts';
import { IdleFiles } from '../file/idle-files.ts';
import { EVENT_TEXTS } from '../live/event-texts.ts';
import { addressOf, Membership } from '../membership/membership.ts';
import type { Upkeeps } from '../membership/upkeeps.ts';
import { FullDisks } from '../process/full-disks.ts';
import { Repairer } from '../repair/repairer.ts';
import { Scrubber } from '../repair/scrubber.ts';
import { ballastKeep } from '../storage/ballast.ts';
import type { ClusterTransport, Transport } from '../transport/transport.ts';
import type { Base } from './base.ts';
import { type CoreParts, isConnectedOf } from './cores.ts';
import { peerHandlers } from './peer-handlers.ts';
import type { ServiceParts } from './services.ts';
import type { StorageParts } from './storage.ts';
import { makeUpkeeps } from './upkeep.ts';

/** What a server does without a request of a client: traffic with its peers, and upkeep of its disk and files. */
export interface BackgroundParts {
  readonly transport: ClusterTransport;
  readonly repairer: Repairer;
  readonly scrubber: Scrubber;
  readonly fullDisks: FullDisks;
  readonly idle: IdleFiles;
  readonly membership: Membership;
  readonly upkeeps: Upkeeps;
  keepBallast(): void;
}

export function makeBackground(
  base: Base,
  storage: StorageParts,
  cores: CoreParts,
  services: ServiceParts,
): BackgroundParts {
  const { self, config, bootstrap, known, folder, world, clock, log, events } = base;
  const { store, departed } = storage;
  const { host, lease, named, observer, conflicts } = cores;
  const { files, catalogMember, gateway, succession } = services;
  const catalog = catalogMember.service;
  const isConnected = isConnectedOf(self, () => transport);
  const call: Transport['call'] = (to, method, payload, timeoutMs) =>
    transport.call(to, method, payload, timeoutMs);
  const repairer = new Repairer({
    ...{ self, world, log, store, isConnected, call },
    repaired: (file, index) => events.add(EVENT_TEXTS.repaired(self, file, index)),
  });
  const keepBallast = (): void => {
    if (store.reserve.isLow) return;
    ballastKeep(folder.path).catch((error: unknown) => {
      log.warn({ err: error }, 'cannot reserve disk space for a start on a full disk');
    });
  };
  const fullDisks = new FullDisks({
    ...{ world, log, isConnected, call },
    reserve: store.reserve,
    peers: () => transport.peers,
    changed: (isLow) => {
      events.add(isLow ? EVENT_TEXTS.diskFull(self) : EVENT_TEXTS.diskHasSpace(self));
      if (isLow) return;
      idle.resetRestartWaits();
      keepBallast();
    },
  });
  const scrubber = new Scrubber({
    ...{ world, clock, log, store, repairer },
    recordFile: folder.file('scrub.json'),
    bytesPerS: config.scrubBytesPerS,
    everyMs: config.scrubEveryMs,
    paths: async (inodes) => {
      const { paths } = await gateway.queryCatalog({ kind: 'paths', inodes: [...inodes].slice(0, 1_000) });
      return new Map(paths.map(({ inode, volume, path }) => [inode as FileId, `${volume}:${path}`]));
    },
  });
  const transport = base.machine.peerTransport({
    world,
    server: self,
    incarnation: base.incarnation,
    cluster: config.cluster,
    paramsHash: paramsHash(config),
    peers: addressesOf(known.urls),
    log,
    ...(base.security.peers === null ? {} : { tls: base.security.peers }),
    handlers: peerHandlers({
      ...services,
      ...{ lease, named, host, observer, repairer, scrubber, fullDisks },
      contents: services.creations.contents,
      membership: () => membership,
    }),
  });
  const idle = new IdleFiles({
    ...{ world, clock, log, host, lease, succession },
    settling: files.settling,
    idleMs: config.leaseIdleMs,
  });
  const membership = new Membership({
    ...{
      config,
      world,
      log,
      known,
      store,
      departed,
      host,
      gateway,
      catalog,
      idle,
      transport,
    },
    conflicts,
    named: named.driver,
    memberChanges: files.memberChanges,
    founders: [...bootstrap.urls.keys()],
    conditions: (servers) => upkeeps.root.conditions(servers),
  });
  const upkeeps = makeUpkeeps(base, storage, cores, services, { fullDisks, membership, transport });
  return {
    transport,
    repairer,
    scrubber,
    fullDisks,
    idle,
    membership,
    upkeeps,
    keepBallast,
  };
}

function addressesOf(urls: ReadonlyMap<ServerId, string>): Map<ServerId, Address> {
  return new Map([...urls].map(([server, url]) => [server, addressOf(url)]));
}
