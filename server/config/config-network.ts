import { type Address, addressFormat, addressParse } from './address.ts';
import { ConfigurationError } from './configuration-error.ts';

export type Given = { readonly label: string; readonly value: string } | null;

/** @param example an address for the message @throws ConfigurationError */
export function readAddress({ label, value }: NonNullable<Given>, example: string): Address {
  const address = addressParse(value);
  if (address !== null) return address;
  throw new ConfigurationError(
    `Cannot use ${label} "${value}": write HOST:PORT, such as ${example}, with a port from 1 to 65535`,
  );
}

export interface NetworkGuards {
  readonly tls: TlsFiles | null;
  /** File with the tokens of clients; null if clients need none. */
  readonly tokens: string | null;
  readonly insecureNetwork: boolean;
  /** Further names in the `Host` of requests, `*.NAME` for all subdomains. */
  readonly hostNames: readonly string[];
}

const WILDCARDS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

export interface TlsFiles {
  /** Certificate of this server, optionally with intermediate ones. */
  readonly cert: string;
  readonly key: string;
  /** Trusted authorities: one, or two while they change. */
  readonly ca: string;
}

/** @throws ConfigurationError unless all three files of TLS are given, or none */
export function readTlsFiles(cert: Given, key: Given, ca: Given): TlsFiles | null {
  const files = { cert, key, ca };
  const missing = (['cert', 'key', 'ca'] as const).filter((name) => files[name] === null);
  if (missing.length === 3) return null;
  if (cert === null || key === null || ca === null) {
    throw new ConfigurationError(
      `TLS needs --tls-cert, --tls-key and --tls-ca together: add ${missing.map((name) => `--tls-${name}`).join(' and ')}`,
    );
  }
  return { cert: cert.value, key: key.value, ca: ca.value };
}

/** Returns the file of tokens, or null. @throws ConfigurationError without TLS: tokens are secrets */
export function readTokens(tokens: Given, tls: TlsFiles | null): string | null {
  if (tokens !== null && tls === null) {
    throw new ConfigurationError(
      `Cannot use ${tokens.label} without TLS: tokens would be sent in ` +
        'clear text; add --tls-cert, --tls-key and --tls-ca',
    );
  }
  return tokens?.value ?? null;
}

export function readHostNames(given: Given): string[] {
  if (given === null) return [];
  return given.value.split(',').map((part) => {
    const name = part.trim();
    if (/^(?:\*\.)?[a-z0-9_](?:[a-z0-9_.-]{0,251}[a-z0-9_])?$/i.test(name)) return name;
    throw new ConfigurationError(
      `Cannot use ${given.label} "${given.value}": write names of hosts without ports, such as files.example.org or *.example.org`,
    );
  });
}

/**
 * Without TLS and tokens, any host that reaches a server has full access: addresses other than loopback need both, or
 * an explicit option.
 * @param addresses where this server listens, and the servers' addresses
 * @throws ConfigurationError that says how to get both
 */
export function refuseOpenNetwork(id: string, addresses: readonly Address[], guards: NetworkGuards): void {
  const missing = missingGuards(guards);
  if (guards.insecureNetwork || missing.length === 0) return;
  const open = addresses.find(({ host }) => !isLoopback(host));
  if (open === undefined) return;
  // A wildcard is no address that others can connect to.
  const found = WILDCARDS.has(open.host) ? 'NAME-OR-ADDRESS-OF-THIS-MACHINE' : open.host;
  throw new ConfigurationError(
    `Cannot use address ${addressFormat(open)}: it is reachable from other machines, and without ` +
      `${missing.join(' and ')} every client could read and change everything. These commands create both:\n` +
      '  leasehold cert create-ca --dir certs\n' +
      `  leasehold cert create-node ${id} --host ${found} --dir certs\n` +
      '  leasehold token create me --role admin --tokens certs/tokens.json --out certs/me.token\n' +
      'Then add\n' +
      `  --tls-cert certs/${id}.pem --tls-key certs/${id}-key.pem --tls-ca certs/ca.pem --tokens certs/tokens.json\n` +
      'Or use loopback addresses, or give --insecure-network on a trusted network, such as a private ' +
      'container network or a tunnel',
  );
}

export function missingGuards({ tls, tokens }: Pick<NetworkGuards, 'tls' | 'tokens'>): string[] {
  return [...(tls === null ? ['TLS'] : []), ...(tokens === null ? ['tokens'] : [])];
}

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(?:\.\d{1,3}){3}$/.test(host);
}
