import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import type { FastifyInstance } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { ServerId } from '../../base/ids.ts';

/** Host and optional port (RFC 9110, 7.2; RFC 3986, 3.2.2); empty for a target without authority. */
const HOST = /^(\[[0-9a-f:.]+\]|[\w.~!$&'()*+;=%-]*)(?::\d{0,5})?$/i;

/**
 * Host names that a server without authentication accepts. A page of a foreign site whose name resolves to this machine
 * (DNS rebinding) has the same origin as this server for its browser, but sends the foreign name. Addresses are always
 * accepted: no site can redirect another's address.
 */
export class HostNames {
  readonly #configured: readonly string[];
  readonly #urls: ReadonlyMap<ServerId, string>;

  /** @param configured names; `*.NAME` stands for all names below NAME. `urls` changes in place */
  constructor(configured: readonly string[], urls: ReadonlyMap<ServerId, string>) {
    this.#configured = [...configured, 'localhost', '*.localhost', hostname()].map(normalized);
    this.#urls = urls;
  }

  /** Whether requests for this host are accepted. @param host undefined without a Host header, which browsers send */
  allows(host: string | undefined): boolean {
    const name = normalized(HOST.exec(host ?? '')?.[1] ?? '');
    if (host === undefined || host === '' || isIP(name.replace(/^\[(.*)\]$/, '$1')) !== 0) return true;
    const isConfigured = this.#configured.some((one) =>
      one.startsWith('*.') ? name.endsWith(one.slice(1)) : name === one,
    );
    return isConfigured || [...this.#urls.values()].some((url) => normalized(new URL(url).hostname) === name);
  }
}

/** Refuses requests with a malformed, doubled or foreign Host. `names` is null if every name is accepted. */
export function guardHosts(app: FastifyInstance, names: HostNames | null): void {
  app.addHook('onRequest', async ({ raw }) => {
    const { host } = raw.headers;
    if (hostCount(raw) > 1) throw new ServiceError('bad-request', 'The request has several Host headers');
    if (host !== undefined && !HOST.test(host)) throw new ServiceError('bad-request', 'Invalid Host header');
    const reason = names === null ? null : hostRefusal(raw, names);
    if (reason !== null) throw new ServiceError('forbidden', reason);
  });
}

export function hostRefusal({ headers: { host } }: IncomingMessage, names: HostNames): string | null {
  if (names.allows(host)) return null;
  return (
    `Unknown host name ${JSON.stringify(host)}, and this server requires no authentication: add the ` +
    'name to --host-names, or use an address'
  );
}

function hostCount({ rawHeaders }: IncomingMessage): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]?.toLowerCase() === 'host') count++;
  return count;
}

function normalized(name: string): string {
  return name.toLowerCase().replace(/\.$/, '');
}
