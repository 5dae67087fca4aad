import type { IncomingHttpHeaders } from 'node:http';
import { isServerId, type ServerId } from '../../base/ids.ts';
import { COMMANDS_VERSION } from '../../catalog/versions.ts';
import { WIRE_OLDEST, WIRE_VERSION } from './frame.ts';
import type { PeerHello } from './transport.ts';

/** Path at which servers connect to each other, on the HTTP port. */
export const PEER_PATH = '/v1/peer';

export interface Introduction extends Omit<PeerHello, 'commands'> {
  /** Hash of the parameters that all servers of a cluster must share. */
  readonly paramsHash: string;
}

export interface Refusal {
  readonly status: 400 | 403 | 404 | 409 | 421 | 426 | 503;
  readonly reason: string;
}

export type HandshakeResult =
  | {
      readonly kind: 'welcome';
      readonly hello: PeerHello;
      readonly wire: number;
    }
  | { readonly kind: 'refused'; readonly refusal: Refusal };

/** Returns the headers of an introduction; `expected` is the server that a request wants to reach. */
export function helloHeaders(own: Introduction, expected: ServerId | null): Record<string, string> {
  return {
    'leasehold-wire': String(WIRE_VERSION),
    'leasehold-wire-oldest': String(WIRE_OLDEST),
    'leasehold-commands': String(COMMANDS_VERSION),
    'leasehold-cluster': own.cluster,
    'leasehold-server': own.server,
    'leasehold-incarnation': String(own.incarnation),
    'leasehold-params': own.paramsHash,
    ...(expected !== null && { 'leasehold-peer': expected }),
  };
}

/** Checks the introduction of a peer. The version comes first: it defines what the other headers mean. */
export function checkIntroduction(
  headers: IncomingHttpHeaders,
  own: Introduction,
  isPeer: (server: ServerId) => boolean,
): HandshakeResult {
  const wire = header(headers, 'leasehold-wire');
  const cluster = header(headers, 'leasehold-cluster');
  const server = header(headers, 'leasehold-server');
  const incarnation = Number(header(headers, 'leasehold-incarnation'));
  const params = header(headers, 'leasehold-params');
  // A release that does not send this header has version 1.
  const commands = Number(header(headers, 'leasehold-commands') || '1');
  const expected = header(headers, 'leasehold-peer');

  if (wire === '')
    return refused(
      400,
      'The request has no Leasehold handshake headers: check that the client is a Leasehold server',
    );
  const common = wireInCommon(wire, header(headers, 'leasehold-wire-oldest'));
  if (common === null) {
    return refused(
      426,
      `No common protocol version: the peer speaks up to ${wire}, ${own.server} up ` +
        `to ${WIRE_VERSION}; upgrade through a release that speaks both, or stop all ` +
        'servers and start the same release everywhere',
    );
  }
  const areNumbers = Number.isSafeInteger(incarnation) && Number.isSafeInteger(commands);
  if (!isServerId(server) || !areNumbers || incarnation < 1 || commands < 1) {
    return refused(400, 'Malformed server id, incarnation or command version in the handshake');
  }
  if (cluster !== own.cluster) {
    return refused(
      403,
      `${server} belongs to cluster "${cluster}" and ${own.server} to "${own.cluster}": check --cluster and --peer`,
    );
  }
  if (server === own.server) {
    return refused(
      409,
      incarnation === own.incarnation
        ? `${server} connected to itself: the --peer address of another server is its own; correct it`
        : `Two servers claim to be ${server}: give each server an --id of its own`,
    );
  }
  if (!isPeer(server)) {
    return refused(
      403,
      `Server ${server} is not in the configuration of ${own.server}: add --peer ${server}=HOST:PORT there, or start it with --join`,
    );
  }
  if (expected !== '' && expected !== own.server) {
    return refused(
      421,
      `${server} wanted to connect to ${expected} and reached ${own.server}: correct the address of ${expected}`,
    );
  }
  if (params !== own.paramsHash) {
    return refused(
      409,
      `The parameters of ${server} and ${own.server} differ: --lease, --named-lease-max, --lease-algorithm, --clock-skew and --catalog-members must be the same on all servers`,
    );
  }
  return { kind: 'welcome', hello: { server, incarnation, cluster, commands }, wire: common };
}

/** Returns the newest version that both sides speak. `oldest` is empty from a release that speaks only `newest`. */
export function wireInCommon(newest: string, oldest: string): number | null {
  const [high, low] = [Number(newest), Number(oldest === '' ? newest : oldest)];
  if (!Number.isSafeInteger(high) || !Number.isSafeInteger(low) || low < 1 || low > high) return null;
  const common = Math.min(high, WIRE_VERSION);
  return common >= Math.max(low, WIRE_OLDEST) ? common : null;
}

function refused(status: Refusal['status'], reason: string): HandshakeResult {
  return { kind: 'refused', refusal: { status, reason } };
}

/** Returns a header's single value, cut to a length that is safe to log; empty if it is missing. */
function header(headers: IncomingHttpHeaders, name: string): string {
  const value = headers[name];
  return typeof value === 'string' ? value.slice(0, 128) : '';
}
