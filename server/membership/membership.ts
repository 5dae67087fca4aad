import type { Logger } from 'pino';
import type { FileId, ServerId } from '../../base/ids.ts';
import type { Timer, World } from '../../base/world.ts';
import { DIGESTS_VERSION, MOVES_VERSION } from '../../catalog/versions.ts';
import type { View } from '../../replica/view.ts';
import { viewVoters } from '../../replica/view.ts';
import { MalformedError } from '../../wire/bytes.ts';
import type { ClusterSettings, ServerInfo, ServerState } from '../../wire/catalog-api.ts';
import type { ClusterServers, ReplicaLag } from '../../wire/http-api.ts';
import { jsonOf } from '../../wire/json.ts';
import type { CatalogHolder } from '../catalog/catalog-holder.ts';
import type { Address } from '../config/address.ts';
import type { ServerConfig } from '../config/config.ts';
import type { DepartedFiles } from '../file/departed-files.ts';
import type { IdleFiles } from '../file/idle-files.ts';
import type { MemberChanges } from '../file/member-changes.ts';
import type { ReplicaHost } from '../file/replica-host.ts';
import {
  decodePlace,
  encodePlaceRequest,
  REPLICA_PLACE_CALL,
  type RemoteReplica,
  serveReplicaPlace,
} from '../file/replica-place.ts';
import type { ViewConflicts } from '../file/view-conflicts.ts';
import type { NamedLeaseDriver } from '../named/named-lease-driver.ts';
import { LoopPace } from '../process/loop-pace.ts';
import type { Gateway } from '../routing/gateway.ts';
import type { FileStore } from '../storage/store.ts';
import type { ClusterTransport } from '../transport/transport.ts';
import { AntiEntropy } from './anti-entropy.ts';
import {
  catalogViewOf,
  isClusterServers,
  type KnownServers,
  knownServerOf,
  settingsOf,
} from './known-servers.ts';
import {
  decodeAnswers,
  encodeOrders,
  MOVE_CALL,
  type MoveAnswer,
  type MoveOrder,
  MoveOrders,
} from './move-orders.ts';
import { POSITIONS_CALL } from './positions-call.ts';
import { DIGESTS_CALL } from './range-digests.ts';
import { VOTERS_CALL, VotersKeeper } from './voters-keeper.ts';
import type { ServerCondition } from './wanted-members.ts';

const SERVERS_CALL = 'servers';
const KNOWN_SERVERS_CALL = 'known-servers';
const OPEN_CATALOG_CALL = 'hold-catalog';
const CALL_MS = 10_000;
/** While this server is drained, it hands files that it had to open anyway over to others this often. */
const HAND_OVER_MS = 5_000;
/** Longest wait for one move of a file, or of the catalog, which continues after that. */
const CHANGE_MS = 60_000;

export interface MembershipParts {
  readonly config: ServerConfig;
  readonly world: World;
  readonly log: Logger;
  readonly known: KnownServers;
  readonly store: FileStore;
  readonly departed: Pick<DepartedFiles, 'view'>;
  readonly host: ReplicaHost;
  readonly gateway: Gateway;
  readonly catalog: CatalogHolder;
  readonly idle: IdleFiles;
  readonly memberChanges: MemberChanges;
  readonly transport: ClusterTransport;
  readonly conflicts: ViewConflicts;
  readonly named: NamedLeaseDriver;
  readonly founders: readonly ServerId[];
  /** @see ServerConditions.of */
  conditions(servers: readonly ServerInfo[]): readonly ServerCondition[];
}

/** Exchanges lists of servers with the other servers, and has the parts of this one adapt to changes of the cluster. */
export class Membership {
  readonly #parts: MembershipParts;
  readonly #orders: MoveOrders;
  readonly #voters: VotersKeeper;
  readonly #antiEntropy: AntiEntropy;
  readonly #handOverTimer: Timer;
  /** The last list that this server announced as the catalog's primary; and the peers to which it was sent. */
  #announced = '';
  readonly #informed = new Set<ServerId>();

  constructor(parts: MembershipParts) {
    this.#parts = parts;
    const { config, world, log, known, store, host, gateway, transport } = parts;
    this.#orders = new MoveOrders({
      world,
      pace: new LoopPace(world),
      change: (file, members, decidedBy) => parts.memberChanges.change(file, members, decidedBy),
      release: (driver) => parts.idle.release(driver),
    });
    this.#voters = new VotersKeeper({
      ...{ self: config.id, log, founders: parts.founders, driver: parts.named, world },
      timing: { leaseMs: config.namedLeaseMaxMs, clockSkewMaxMs: config.clockSkewMaxMs },
      isCatalogPrimary: () => this.#isCatalogPrimary(),
      catalogMembers: () => {
        const view = parts.catalog.view();
        return view === null || view.joint !== undefined ? null : view.members;
      },
      conditions: async () => {
        const { servers } = await gateway.queryCatalog({ kind: 'servers', counts: false });
        return parts.conditions(servers);
      },
      query: () => gateway.queryCatalog({ kind: 'voters' }),
      command: (command) => gateway.command(command),
      flush: () => gateway.root.flush(),
      commandsVersion: (server) => transport.commandsVersion(server),
      call: (to, method, payload, timeoutMs) => transport.call(to, method, payload, timeoutMs),
    });
    this.#antiEntropy = new AntiEntropy({
      world,
      self: config.id,
      log,
      everyMs: config.compareEveryMs,
      list: (after, countMax) => store.list(after, countMax),
      record: (file) => store.record(file),
      departedView: (file) => parts.departed.view(file)?.number ?? 0,
      sizeBytes: (file) => store.attributes(file).sizeBytes,
      conflicts: parts.conflicts,
      isInUse: (file) => host.loaded(file) !== null,
      peers: () => transport.peers.filter((peer) => transport.isConnected(peer)),
      call: (to, method, payload, timeoutMs) => transport.call(to, method, payload, timeoutMs),
      isFinal: (file) => store.record(file) !== null && store.attributes(file).seal === 'final',
      isWithoutServers: async (file) => {
        const { files } = await gateway.queryCatalog({ kind: 'placed', inodes: [file] });
        return files[0]?.members.length === 0;
      },
      open: (file) => gateway.files.leaseStatus(file),
      hasDigests: (peer) => (transport.commandsVersion(peer) ?? 0) >= DIGESTS_VERSION,
    });
    store.recordChanges.on((file) => this.#antiEntropy.changed(file));
    known.onChange(() => this.#applyKnown());
    this.#handOverTimer = world.every(HAND_OVER_MS, () => this.#handOver());
  }

  start(): void {
    this.#applyKnown();
  }

  close(): void {
    this.#handOverTimer.cancel();
    this.#voters.close();
    this.#antiEntropy.close();
  }

  describe(): ClusterServers {
    return this.#parts.known.describe();
  }

  state(): ServerState {
    return this.#parts.known.stateOf(this.#parts.config.id);
  }

  behind(): ReadonlyMap<ServerId, number> {
    return this.#antiEntropy.behind();
  }

  uncompared(): readonly ServerId[] {
    return this.#antiEntropy.uncompared();
  }

  votersWanted(): number | null {
    return this.#voters.wantedCount;
  }

  lag(): ReplicaLag {
    return this.#antiEntropy.lag();
  }

  connected(peer: ServerId): void {
    this.#informed.delete(peer);
    this.#sendKnown(peer);
    this.#voters.connected(peer);
    this.#antiEntropy.connected(peer);
  }

  hasPosition(
    peer: ServerId,
    file: FileId,
    position: Parameters<AntiEntropy['hasPosition']>[2],
  ): Promise<boolean> {
    return this.#antiEntropy.hasPosition(peer, file, position);
  }

  isAt(peer: ServerId, file: FileId, position: Parameters<AntiEntropy['isAt']>[2]): Promise<boolean> {
    return this.#antiEntropy.isAt(peer, file, position);
  }

  async placeAt(peer: ServerId, file: FileId): Promise<RemoteReplica | null> {
    return decodePlace(
      await this.#parts.transport.call(peer, REPLICA_PLACE_CALL, encodePlaceRequest(file), CALL_MS),
    );
  }

  /** Answers a call of another server about membership; null: the call is of another subsystem. */
  serve(from: ServerId, method: string, payload: Uint8Array): Promise<Uint8Array> | null {
    switch (method) {
      case POSITIONS_CALL:
        return Promise.resolve(this.#antiEntropy.serve(from, payload));
      case DIGESTS_CALL:
        return this.#antiEntropy.serveDigests(from, payload);
      case REPLICA_PLACE_CALL:
        return Promise.resolve(serveReplicaPlace(payload, (file) => this.#parts.store.record(file)));
      case SERVERS_CALL:
        this.#takeList(payload);
        return Promise.resolve(new Uint8Array(0));
      case KNOWN_SERVERS_CALL:
        this.#parts.known.mergePeerList(decodeList(payload));
        return Promise.resolve(new Uint8Array(0));
      case MOVE_CALL:
        return this.#orders.serve(payload);
      case VOTERS_CALL:
        return Promise.resolve(this.#voters.serve(payload));
      case OPEN_CATALOG_CALL:
        return this.#parts.catalog.openReplica().then(() => new Uint8Array(0));
      default:
        return null;
    }
  }

  #isCatalogPrimary(): boolean {
    const { catalog, config } = this.#parts;
    return catalog.status().primary === config.id;
  }

  #isConnected(server: ServerId): boolean {
    return server === this.#parts.config.id || this.#parts.transport.isConnected(server);
  }

  #applyKnown(): void {
    const { known, transport, config } = this.#parts;
    for (const peer of transport.peers) if (!known.urls.has(peer)) transport.removePeer(peer);
    for (const [peer, url] of known.urls) {
      if (peer !== config.id) transport.addPeer(peer, addressOf(url));
    }
    this.#parts.catalog.knownViewChanged();
    this.#openCatalog();
    this.#handOver();
  }

  /** Opens a replica of the catalog if this member has none: its disk was replaced, or it learned late of its role. */
  #openCatalog(): void {
    const { known, catalog, config, log } = this.#parts;
    if (catalog.view() !== null || !known.catalogView.members.includes(config.id)) return;
    catalog.openReplica().catch((error: unknown) => {
      log.error({ err: error }, "cannot open this server's catalog replica");
    });
  }

  #handOver(): void {
    const { known, idle } = this.#parts;
    if (!known.isDraining) return;
    void idle.handOver((driver) => this.successor(driver.view) !== null);
  }

  /** The server that is to be primary of a file instead of this one; null if this one may be. */
  successor(view: View): ServerId | null {
    const { known, config } = this.#parts;
    if (!known.isDraining) return null;
    const others = [...viewVoters(view)].filter(
      (member) => member !== config.id && this.#isConnected(member),
    );
    return others.find((member) => known.stateOf(member) === 'in') ?? null;
  }

  /** Has a server move files. @returns null if it runs an earlier release, which moves single files */
  async orderMoves(server: ServerId, orders: readonly MoveOrder[]): Promise<readonly MoveAnswer[] | null> {
    const { config, transport } = this.#parts;
    if (server === config.id) return this.#orders.carryOut(orders);
    if ((transport.commandsVersion(server) ?? 0) < MOVES_VERSION) return null;
    return decodeAnswers(
      await transport.call(server, MOVE_CALL, encodeOrders(orders), CHANGE_MS),
      orders.length,
    );
  }

  /** Has the new members open replicas, then changes the members of the catalog. */
  async changeCatalogMembers(members: readonly ServerId[]): Promise<View> {
    const { transport, gateway, config, catalog } = this.#parts;
    const before = catalog.status().members;
    for (const member of members) {
      if (member === config.id || before.includes(member)) continue;
      await transport.call(member, OPEN_CATALOG_CALL, new Uint8Array(0), CALL_MS);
    }
    return gateway.changeCatalogMembers(members, { timeoutMs: CHANGE_MS });
  }

  /** As the catalog's primary, sends its list of servers to those that do not have it yet. */
  announce(servers: readonly ServerInfo[], settings: ClusterSettings | null): void {
    const { known, transport, catalog, log } = this.#parts;
    const { epoch, seq } = catalog.status();
    const view = catalog.view();
    if (view === null || view.joint !== undefined) return;
    const { number, members } = view;
    const list = servers.map(knownServerOf);
    const text = JSON.stringify([list, number, settings]);
    if (text !== this.#announced) {
      this.#announced = text;
      this.#informed.clear();
      known.adoptCatalogList(list, { number, members }, [epoch, seq], settings);
    }
    const payload = Buffer.from(JSON.stringify({ ...known.describe(), epoch, seq }));
    for (const peer of transport.peers) {
      if (this.#informed.has(peer) || !transport.isConnected(peer)) continue;
      this.#informed.add(peer);
      transport.call(peer, SERVERS_CALL, payload, CALL_MS).catch((error: unknown) => {
        this.#informed.delete(peer);
        log.debug({ peer, err: error }, 'cannot send the list of servers to a server yet');
      });
    }
  }

  #sendKnown(peer: ServerId): void {
    const { known, transport, log } = this.#parts;
    const payload = Buffer.from(JSON.stringify(known.describe()));
    transport.call(peer, KNOWN_SERVERS_CALL, payload, CALL_MS).catch((error: unknown) => {
      log.debug({ peer, err: error }, 'a server refused the list of servers');
    });
  }

  #takeList(payload: Uint8Array): void {
    const list = decodeList(payload);
    const { epoch, seq } = list as { epoch?: unknown; seq?: unknown };
    if (typeof epoch !== 'number' || typeof seq !== 'number') {
      throw new MalformedError('A list of servers lacks its version');
    }
    this.#parts.known.adoptCatalogList(list.servers, catalogViewOf(list), [epoch, seq], settingsOf(list));
  }
}

function decodeList(payload: Uint8Array): ClusterServers {
  const list = jsonOf(payload, 'A list of servers is');
  if (!isClusterServers(list)) throw new MalformedError('A list of servers lacks fields');
  return list;
}

export function addressOf(url: string): Address {
  const { hostname, port, protocol } = new URL(url);
  const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
  return { host, port: port === '' ? (protocol === 'https:' ? 443 : 80) : Number(port) };
}
