import type { CatalogMoves } from '../catalog/catalog-moves.ts';
import type { CatalogSurvey } from '../catalog/catalog-survey.ts';
import type { LeaseDriver } from '../drivers/lease-driver.ts';
import { BACKUP_CREATE_CALL, CREATE_CALL, SYNCED_CREATE_CALL } from '../file/creation-call.ts';
import type { FirstContents } from '../file/first-contents.ts';
import { AGREE_CALL, AGREE_SYNCED_CALL, type QuorumReads } from '../file/quorum-reads.ts';
import type { ReplicaHost } from '../file/replica-host.ts';
import type { SharedCopies } from '../file/shared-copies.ts';
import { PREPARE_CALL, SUCCEED_CALL, type Succession } from '../file/succession.ts';
import { UNLOCKED_CALL, type UnlockedEnds } from '../file/unlocked-ends.ts';
import type { Observer } from '../live/observer.ts';
import type { CatalogListExchange } from '../membership/catalog-list-exchange.ts';
import type { Membership } from '../membership/membership.ts';
import { LEASES_CALL } from '../named/lease-directory.ts';
import type { NamedLeases } from '../named/named-leases.ts';
import { DISK_CALL, type FullDisks } from '../process/full-disks.ts';
import { REPAIR_CALL } from '../repair/repair-call.ts';
import type { Repairer } from '../repair/repairer.ts';
import type { Scrubber } from '../repair/scrubber.ts';
import { COPY_CALL } from '../routing/copy-call.ts';
import type { Gateway } from '../routing/gateway.ts';
import { CHANNEL_LEASE, CHANNEL_NAMED_LEASE, type TransportHandlers } from '../transport/transport.ts';

export interface PeerHandlersParts {
  readonly lease: LeaseDriver;
  readonly named: NamedLeases;
  readonly host: ReplicaHost;
  readonly contents: FirstContents;
  readonly copies: SharedCopies;
  readonly quorumReads: QuorumReads;
  readonly gateway: Gateway;
  readonly succession: Succession;
  readonly lockEndings: UnlockedEnds;
  readonly repairer: Repairer;
  readonly scrubber: Scrubber;
  readonly fullDisks: FullDisks;
  readonly observer: Observer;
  readonly catalogLists: CatalogListExchange;
  readonly catalogMoves: CatalogMoves;
  readonly catalogSurvey: CatalogSurvey;
  membership(): Membership;
}

/** Routes messages and calls of peers to the parts of this server. */
export function peerHandlers(parts: PeerHandlersParts): TransportHandlers {
  const { lease, named, host, contents, copies, quorumReads, gateway } = parts;
  const { catalogLists, catalogMoves, catalogSurvey } = parts;
  const { succession, lockEndings, repairer, scrubber, fullDisks, observer } = parts;
  return {
    message: (from, channel, payload, tail) => {
      if (channel === CHANNEL_LEASE) lease.receive(from, payload);
      else if (channel === CHANNEL_NAMED_LEASE) named.driver.receive(from, payload);
      else host.receive(from, channel, payload, tail);
    },
    connected: (peer) => {
      observer.connected(peer);
      host.connected(peer);
      parts.membership().connected(peer);
      catalogLists.connected(peer);
      scrubber.retry();
    },
    disconnected: (peer) => {
      observer.disconnected(peer);
      gateway.peerDisconnected(peer);
      lease.disconnected(peer);
      named.driver.disconnected(peer);
      succession.peerLost();
    },
    isDeferrable: (method) => method === BACKUP_CREATE_CALL || method === UNLOCKED_CALL,
    call: async (from, method, payload) => {
      switch (method) {
        case LEASES_CALL:
          return named.directory.serve(payload);
        case REPAIR_CALL:
          return repairer.serve(payload);
        case CREATE_CALL:
        case BACKUP_CREATE_CALL:
          return contents.serve(from, payload, false);
        case SYNCED_CREATE_CALL:
          return contents.serve(from, payload, true);
        case COPY_CALL:
          return copies.serve(payload);
        case AGREE_CALL:
          return quorumReads.serve(from, payload);
        case AGREE_SYNCED_CALL:
          return quorumReads.serveSynced(from, payload);
        case DISK_CALL:
          return fullDisks.serve(from, payload);
        case PREPARE_CALL:
          return succession.servePrepare();
        case SUCCEED_CALL:
          return succession.serve(from, payload);
        case UNLOCKED_CALL:
          return lockEndings.serve(payload);
        default:
          return (
            parts.membership().serve(from, method, payload) ??
            catalogLists.serve(method, payload) ??
            catalogMoves.serve(method, payload) ??
            catalogSurvey.serve(method, payload) ??
            host.serve(method, payload)
          );
      }
    },
  };
}
