/** Traffic between servers, as they count it. */
export interface PeerTraffic {
  readonly messages: number;
  /** Of messages, without the headers of frames and connections. */
  readonly bytes: number;
  /** Requests that were forwarded to another server over HTTP, which are no messages. */
  readonly forwards: number;
}

export const NO_TRAFFIC: PeerTraffic = { messages: 0, bytes: 0, forwards: 0 };

/**
 * Parses the text form of metrics.
 *
 * @returns values by name and labels, as `name{label="value"}`
 */
export function metricsOf(text: string): ReadonlyMap<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    // Values of labels may have spaces, numbers have none.
    const end = line.lastIndexOf(' ');
    values.set(line.slice(0, end), Number(line.slice(end + 1)));
  }
  return values;
}

/** @throws Error if a server does not count messages or bytes: then they cannot be measured */
export function peerTrafficOf(metrics: ReadonlyMap<string, number>): PeerTraffic {
  const counted = (name: string): number => {
    const value = metrics.get(name);
    if (value === undefined) throw new Error(`The server has no metric ${name}`);
    return value;
  };
  let forwards = 0;
  for (const [name, value] of metrics) if (name.startsWith('leasehold_forwards_total{')) forwards += value;
  return {
    messages: counted('leasehold_peer_messages_total{fate="sent"}'),
    bytes: counted('leasehold_peer_bytes_total{direction="sent"}'),
    forwards,
  };
}

export function trafficSum(all: readonly PeerTraffic[]): PeerTraffic {
  return all.reduce(
    (sum, one) => ({
      messages: sum.messages + one.messages,
      bytes: sum.bytes + one.bytes,
      forwards: sum.forwards + one.forwards,
    }),
    NO_TRAFFIC,
  );
}

export function trafficSince(now: PeerTraffic, before: PeerTraffic): PeerTraffic {
  return {
    messages: now.messages - before.messages,
    bytes: now.bytes - before.bytes,
    forwards: now.forwards - before.forwards,
  };
}
