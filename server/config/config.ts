import { createHash } from 'node:crypto';
import { parse as parseToml, TomlError } from 'smol-toml';
import { DURATION_FORM, durationFormat, durationParse } from '../../base/duration.ts';
import { CLIENT_VARIABLES, PASSPHRASE_VARIABLE } from '../../base/environment.ts';
import { isServerId, type ServerId, serverIdCompare } from '../../base/ids.ts';
import type { LeaseAlgorithm } from '../../lease/parameters.ts';
import { isLabel, isZone, LABELS_MAX, ZONE_FORM } from '../../wire/placement-class.ts';
import { DIRECT_WRITES_MODES, type DirectWritesMode } from '../storage/direct-writes.ts';
import { type Address, addressFormat, addressParse } from './address.ts';
import {
  type Given,
  isLoopback,
  type NetworkGuards,
  readAddress,
  readHostNames,
  readTlsFiles,
  readTokens,
  refuseOpenNetwork,
} from './config-network.ts';
import { OPTIONS, type OptionName, type OptionSource, optionEnv, suggestion } from './config-options.ts';
import { readS3, type S3Config } from './config-s3.ts';
import { ConfigurationError } from './configuration-error.ts';

/** Options that may be given several times. */
const REPEATED: ReadonlySet<OptionName> = new Set(['peer', 'label']);
/** Options that may be a list in a file. */
const LISTS: ReadonlySet<OptionName> = new Set([
  ...(['catalog-members', 'host-names', 'label', 's3-domains'] as const),
]);

/** A larger catalog agrees more slowly and is hardly safer. */
const CATALOG_MEMBERS_MAX = 5;

/** With a smaller ratio, too much of each lease is lost to the uncertainty of clocks. */
const LEASE_PER_SKEW_MIN = 10;

const LEASE_MS_MIN = 1_000;
const LEASE_MS_MAX = 600_000;
/** How long an unused file keeps its primary: renewals cost messages, an election a few milliseconds. */
const LEASE_IDLE_LEASES = 3;
const OPERATION_TIMEOUT_MS_DEFAULT = 15_000;
const CATALOG_LOG_BYTES_DEFAULT = 256 * 1024 ** 2;
const WEEK_MS = 7 * 86_400_000;
/** A million small files leave a server in 42 minutes. */
const MOVED_FILES_PER_S_DEFAULT = 400;
const MOVED_BYTES_PER_S_DEFAULT = 100 * 1024 * 1024;
const SCRUB_BYTES_PER_S_DEFAULT = 20 * 1024 * 1024;
const CLIENT_REQUESTS_DEFAULT = 2_000;
const ADDRESS_CONNECTIONS_DEFAULT = 2_000;
const NAMED_LEASE_MAX_MS_DEFAULT = 15_000;

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const LEASE_ALGORITHMS: readonly LeaseAlgorithm[] = ['flease', 'paxoslease'];

/** Largest rates at which one server gets or gives replicas of files that move; `Infinity` for no bound. */
export interface MoveRates {
  readonly filesPerS: number;
  readonly bytesPerS: number;
}

export interface ServerConfig extends NetworkGuards {
  readonly id: ServerId;
  readonly cluster: string;
  readonly listen: Address;
  /** The address at which other servers reach each server, this one included. */
  readonly peers: ReadonlyMap<ServerId, Address>;
  readonly urls: ReadonlyMap<ServerId, string>;
  /** Base URLs of servers of a running cluster, which list the others; empty if `peers` does. */
  readonly join: readonly string[];
  readonly zone: string | null;
  /** Sorted; null: none given. */
  readonly labels: readonly string[] | null;
  readonly data: string;
  /** t_max: length of a lease. */
  readonly leaseMs: number;
  /** t_max of named leases. */
  readonly namedLeaseMaxMs: number;
  readonly leaseAlgorithm: LeaseAlgorithm;
  /** ε: maximal difference of two servers' lease clocks. */
  readonly clockSkewMaxMs: number;
  readonly catalogMembers: readonly ServerId[];
  readonly operationTimeoutMs: number;
  /** Bound of the catalog's log, which servers that were away take. */
  readonly catalogLogBytesMax: number;
  readonly gcGraceMs: number;
  readonly leaseIdleMs: number;
  readonly scrubEveryMs: number;
  readonly scrubBytesPerS: number;
  /** `Infinity` for no bound. */
  readonly catchUpBytesPerS: number;
  readonly moveRates: MoveRates;
  readonly directWrites: DirectWritesMode;
  readonly rebuild: boolean;
  /** A server that is unreachable for this long is replaced. */
  readonly replaceAfterMs: number;
  readonly compareEveryMs: number;
  readonly logLevel: LogLevel;
  readonly clientRequestsPerS: number;
  readonly clientRequestsOpen: number;
  readonly addressConnections: number;
  /** Null if the server has no S3 interface. */
  readonly s3: S3Config | null;
}

/**
 * Reads the configuration: a flag overrides the environment, the environment the file, the file the default. Pure,
 * except for `readFile`.
 * @param argv the arguments after `leasehold server`
 * @throws ConfigurationError
 */
export function readConfig(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  readFile: (path: string) => string,
): ServerConfig {
  const flags = readFlags(argv);
  const variables = readEnvironment(env);
  const path = flags.get('config') ?? variables.get('config');
  const file = path === undefined ? new Map<OptionName, OptionSource>() : readToml(path, readFile);
  return assemble((name) => flags.get(name) ?? variables.get(name) ?? file.get(name));
}

/**
 * Hash of everything that all servers must share for the protocols to be safe: the parameters of leases, and the
 * catalog's members, because two different sets would have two majorities.
 */
export function paramsHash(
  config: Pick<
    ServerConfig,
    'leaseMs' | 'clockSkewMaxMs' | 'catalogMembers' | 'namedLeaseMaxMs' | 'leaseAlgorithm'
  >,
): string {
  const shared = JSON.stringify([
    config.leaseMs,
    config.clockSkewMaxMs,
    config.catalogMembers,
    config.namedLeaseMaxMs,
    config.leaseAlgorithm,
  ]);
  return createHash('sha256').update(shared).digest('hex').slice(0, 16);
}

/** @returns the options that need the same value on all servers */
export function sharedSettings(
  config: Pick<ServerConfig, 'leaseMs' | 'clockSkewMaxMs' | 'namedLeaseMaxMs' | 'leaseAlgorithm'>,
): Readonly<Record<string, string>> {
  return {
    '--lease': `${config.leaseMs}ms`,
    '--clock-skew': `${config.clockSkewMaxMs}ms`,
    '--named-lease-max': `${config.namedLeaseMaxMs}ms`,
    '--lease-algorithm': config.leaseAlgorithm,
  };
}

export function serverHelp(): string {
  const lines = OPTIONS.map(({ name, value, help, fallback }) => {
    const left = `--${name}${value === null ? '' : ` ${value}`}`;
    const text = fallback === null ? help : `${help} (default: ${fallback})`;
    return wrap(text, 50).map((line, index) => `  ${(index === 0 ? left : '').padEnd(27)} ${line}`);
  });
  return `Usage: leasehold server --id ID --peer ID=HOST:PORT ... --data DIR [options]

Runs one server of a cluster. All servers are equal; each is configured with
its own id and the addresses of all servers.

${lines.flat().join('\n')}
  -h, --help                  Show this text

To list the servers of a cluster, and to add, drain or remove one:
  leasehold server ls | add | drain | undrain | remove | zone | label   (each with --help)

Durations are ${DURATION_FORM}.
Each option can also be given in the environment, --clock-skew as LEASEHOLD_CLOCK_SKEW,
all --peer together as LEASEHOLD_PEERS=s1=HOST:PORT,s2=HOST:PORT, or in a TOML file under
its name, peers as a table. A flag wins over the environment, and that over the file.

Three servers on one machine, this is the first:
  leasehold server --id s1 --data /var/lib/leasehold/s1 \\
    --peer s1=127.0.0.1:7401 --peer s2=127.0.0.1:7402 --peer s3=127.0.0.1:7403
`;
}

export function configurationTable(): string {
  const rows = OPTIONS.map((option) => {
    const { name, value, help, fallback } = option;
    const flag = `\`--${name}${value === null ? '' : ` ${value}`}\``;
    const key = name === 'config' ? '–' : name === 'peer' ? '`[peers]`' : `\`${name}\``;
    return `| ${flag} | \`${optionEnv(option.name)}\` | ${key} | ${fallback ?? '–'} | ${help} |`;
  });
  return [
    '| flag | environment | file | default | meaning |',
    '| --- | --- | --- | --- | --- |',
    ...rows,
  ].join('\n');
}

function readFlags(argv: readonly string[]): Map<OptionName, OptionSource> {
  const found = new Map<OptionName, OptionSource>();
  const rest = [...argv];
  for (let argument = rest.shift(); argument !== undefined; argument = rest.shift()) {
    const match = /^--([^=]+)(?:=(.*))?$/s.exec(argument);
    if (match === null) {
      throw new ConfigurationError(`Cannot use argument "${argument}": options begin with --, see --help`);
    }
    const [, given = '', inline] = match;
    const option = OPTIONS.find(({ name }) => name === given);
    if (option === undefined) {
      const names = OPTIONS.map(({ name }) => name);
      throw new ConfigurationError(`Unknown option --${given}${suggestion(given, names, '--')}; see --help`);
    }
    const { name } = option;
    const label = `--${name}`;
    const earlier = found.get(name);
    if (earlier !== undefined && !REPEATED.has(name)) {
      throw new ConfigurationError(`Option ${label} is given twice: give it once`);
    }
    let text = inline ?? 'true';
    if (option.value !== null && inline === undefined) {
      const next = rest.shift();
      if (next === undefined || next.startsWith('--')) {
        throw new ConfigurationError(`Option ${label} has no value: write ${label} ${option.value}`);
      }
      text = next;
    }
    found.set(name, { label, texts: [...(earlier?.texts ?? []), text] });
  }
  return found;
}

function readEnvironment(env: Readonly<Record<string, string | undefined>>): Map<OptionName, OptionSource> {
  const found = new Map<OptionName, OptionSource>();
  const names = new Map(OPTIONS.map(({ name }) => [optionEnv(name), name]));
  const ofClients: readonly string[] = [...Object.values(CLIENT_VARIABLES), PASSPHRASE_VARIABLE];
  for (const [label, text] of Object.entries(env)) {
    if (text === undefined || !label.startsWith('LEASEHOLD_') || ofClients.includes(label)) continue;
    const name = names.get(label);
    if (name === undefined) {
      // Other programs may have such variables, but not with a name that is nearly an option's.
      const hint = suggestion(label, [...names.keys()], '', 2);
      if (hint !== '') throw new ConfigurationError(`Unknown environment variable ${label}${hint}`);
      continue;
    }
    // Compose files and service managers leave a variable out by setting it empty.
    if (text === '') continue;
    const texts = name === 'peer' ? text.split(',').map((part) => part.trim()) : [text];
    found.set(name, { label, texts: texts.filter((part) => part !== '') });
  }
  return found;
}

function readToml(path: OptionSource, readFile: (path: string) => string): Map<OptionName, OptionSource> {
  const [name = ''] = path.texts;
  let text: string;
  try {
    text = readFile(name);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ConfigurationError(`Cannot read configuration file "${name}" (${path.label}): ${why}`, {
      cause,
    });
  }
  let table: Record<string, unknown>;
  try {
    table = parseToml(text);
  } catch (cause) {
    if (!(cause instanceof TomlError)) throw cause;
    const [why = ''] = cause.message.split('\n');
    throw new ConfigurationError(`Cannot read "${name}", line ${cause.line}: ${why}`, { cause });
  }
  const found = new Map<OptionName, OptionSource>();
  for (const [key, value] of Object.entries(table)) {
    const label = `"${key}" in ${name}`;
    if (key === 'peers') {
      found.set('peer', { label, texts: peersOfTable(value, label) });
      continue;
    }
    const option = OPTIONS.find((candidate) => candidate.name === key && key !== 'peer' && key !== 'config');
    if (option === undefined) {
      const keys = OPTIONS.map((candidate) => (candidate.name === 'peer' ? 'peers' : candidate.name));
      const known = keys.filter((candidate) => candidate !== 'config');
      throw new ConfigurationError(`Unknown key "${key}" in ${name}${suggestion(key, known, '')}`);
    }
    const isList = LISTS.has(option.name) && Array.isArray(value);
    const plain = isList ? value.join(',') : value;
    if (typeof plain !== (option.value === null ? 'boolean' : 'string')) {
      const form =
        option.value === null ? 'true or false' : `text in quotes, such as ${key} = "${option.example}"`;
      throw new ConfigurationError(`Cannot use ${label}: it must be ${form}`);
    }
    found.set(option.name, { label, texts: [String(plain)] });
  }
  return found;
}

function peersOfTable(value: unknown, label: string): string[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ConfigurationError(
      `Cannot use ${label}: it must be a table, such as [peers] s1 = "127.0.0.1:7401"`,
    );
  }
  return Object.entries(value).map(([id, address]) => `${id}=${String(address)}`);
}

function assemble(source: (name: OptionName) => OptionSource | undefined): ServerConfig {
  const text = (name: OptionName): { label: string; value: string } | null => {
    const found = source(name);
    return found === undefined ? null : { label: found.label, value: found.texts.at(-1) ?? '' };
  };
  const duration = (name: OptionName, fallbackMs: number): number => {
    const found = text(name);
    if (found === null) return fallbackMs;
    const durationMs = durationParse(found.value);
    if (durationMs === null || durationMs === 0) {
      throw new ConfigurationError(
        `Cannot use ${found.label} "${found.value}": invalid duration; write ${DURATION_FORM}`,
      );
    }
    return durationMs;
  };

  const id = readId(text('id'));
  const tls = readTlsFiles(text('tls-cert'), text('tls-key'), text('tls-ca'));
  const guards: NetworkGuards = {
    tls,
    tokens: readTokens(text('tokens'), tls),
    insecureNetwork: readBoolean(text('insecure-network')),
    hostNames: readHostNames(text('host-names')),
  };
  const scheme = tls === null ? 'http' : 'https';
  const join = readJoin(text('join'), scheme);
  const peers = readPeers(source('peer'), id, join.length > 0 ? text('listen') : null);
  if (join.length > 0 && peers.size > 1) {
    throw new ConfigurationError(
      'Cannot use --join together with --peer of other servers: the list comes from the servers at ' +
        `${join.join(', ')}; remove --peer`,
    );
  }
  const own = peers.get(id) as Address;
  const listen = readListen(text('listen'), own, id);
  const s3 = readS3({
    ...{ listen: text('s3-listen'), buckets: text('s3-buckets'), domains: text('s3-domains') },
    ...{ uploadExpiry: text('s3-upload-expiry'), uploadExpiryMs: duration('s3-upload-expiry', WEEK_MS) },
  });
  refuseOpenNetwork(id, [listen, ...peers.values(), ...(s3 === null ? [] : [s3.listen])], guards);

  const leaseMs = duration('lease', 5_000);
  const clockSkewMaxMs = duration('clock-skew', 250);
  checkLease('lease', leaseMs, clockSkewMaxMs);
  const namedLeaseMaxMs = duration('named-lease-max', NAMED_LEASE_MAX_MS_DEFAULT);
  checkLease('named-lease-max', namedLeaseMaxMs, clockSkewMaxMs);
  const operationTimeoutMs = duration('op-timeout', Math.max(OPERATION_TIMEOUT_MS_DEFAULT, 2 * leaseMs));
  if (operationTimeoutMs < leaseMs + 2 * clockSkewMaxMs) {
    throw new ConfigurationError(
      `Cannot use --op-timeout ${durationFormat(operationTimeoutMs)}: it is shorter than a failover, which takes ` +
        `up to the lease and twice the clock skew; give ${durationFormat(leaseMs + 2 * clockSkewMaxMs)} or more`,
    );
  }
  const data = text('data');
  if (data === null || data.value === '') {
    throw new ConfigurationError(
      'No data folder is given: write --data DIR, a folder that belongs to this server alone',
    );
  }
  return {
    id,
    cluster: readCluster(text('cluster')),
    listen,
    peers,
    urls: new Map([...peers].map(([server, address]) => [server, `${scheme}://${addressFormat(address)}`])),
    join,
    zone: readZone(text('zone')),
    labels: readLabels(source('label')),
    data: data.value,
    leaseMs,
    namedLeaseMaxMs,
    leaseAlgorithm: readLeaseAlgorithm(text('lease-algorithm')),
    clockSkewMaxMs,
    catalogMembers: join.length > 0 ? [] : readCatalogMembers(text('catalog-members'), peers),
    operationTimeoutMs,
    catalogLogBytesMax: readSize(text('catalog-log'), CATALOG_LOG_BYTES_DEFAULT),
    gcGraceMs: duration('gc-grace', 3_600_000),
    leaseIdleMs: duration('lease-idle', LEASE_IDLE_LEASES * leaseMs),
    scrubEveryMs: duration('scrub-every', WEEK_MS),
    scrubBytesPerS: readRate(text('scrub-rate'), SCRUB_BYTES_PER_S_DEFAULT),
    catchUpBytesPerS: readRate(text('catch-up-rate'), Infinity),
    moveRates: {
      filesPerS: readCountRate(text('move-files-rate'), 'files', MOVED_FILES_PER_S_DEFAULT),
      bytesPerS: readRate(text('move-bytes-rate'), MOVED_BYTES_PER_S_DEFAULT),
    },
    directWrites: readDirectWrites(text('direct-writes')),
    rebuild: readBoolean(text('rebuild')),
    replaceAfterMs: duration('replace-after', 3_600_000),
    compareEveryMs: duration('compare-every', 600_000),
    logLevel: readLogLevel(text('log-level')),
    clientRequestsPerS: readCountRate(text('client-rate'), 'requests', Infinity),
    clientRequestsOpen: readCount(text('client-requests'), CLIENT_REQUESTS_DEFAULT),
    addressConnections: readCount(text('address-connections'), ADDRESS_CONNECTIONS_DEFAULT),
    s3,
    ...guards,
  };
}

function readId(given: Given): ServerId {
  if (given === null) {
    throw new ConfigurationError(
      'No server id is given: write --id ID, with an id that one of the --peer options has',
    );
  }
  const { value } = given;
  if (!isServerId(value)) {
    throw new ConfigurationError(
      `Cannot use ${given.label} "${value}": an id has 1 to 32 characters of a-z, 0-9 and inner hyphens, such as s1`,
    );
  }
  return value;
}

function checkLease(name: 'lease' | 'named-lease-max', leaseMs: number, clockSkewMaxMs: number): void {
  if (leaseMs < LEASE_MS_MIN || leaseMs > LEASE_MS_MAX) {
    throw new ConfigurationError(
      `Cannot use --${name} ${durationFormat(leaseMs)}: it must lie between ${durationFormat(LEASE_MS_MIN)} and ${durationFormat(LEASE_MS_MAX)}`,
    );
  }
  if (leaseMs < LEASE_PER_SKEW_MIN * clockSkewMaxMs) {
    throw new ConfigurationError(
      `Cannot use --${name} ${durationFormat(leaseMs)} with --clock-skew ${durationFormat(clockSkewMaxMs)}: ` +
        `a lease must be at least ${LEASE_PER_SKEW_MIN} times the clock skew; give a lease of ` +
        `${durationFormat(LEASE_PER_SKEW_MIN * clockSkewMaxMs)} or more`,
    );
  }
}

function readLeaseAlgorithm(given: Given): LeaseAlgorithm {
  const value = given?.value ?? 'flease';
  const algorithm = LEASE_ALGORITHMS.find((candidate) => candidate === value);
  if (algorithm === undefined) {
    throw new ConfigurationError(
      `Cannot use ${given?.label} "${value}": the algorithms are ${LEASE_ALGORITHMS.join(' and ')}`,
    );
  }
  return algorithm;
}

function readDirectWrites(given: Given): DirectWritesMode {
  const value = given?.value ?? 'auto';
  const mode = DIRECT_WRITES_MODES.find((candidate) => candidate === value);
  if (mode === undefined) {
    throw new ConfigurationError(
      `Cannot use ${given?.label} "${value}": write ${DIRECT_WRITES_MODES.join(' or ')}`,
    );
  }
  return mode;
}

function readRate(given: Given, fallback: number): number {
  if (given === null) return fallback;
  const [, count = '', unit = ''] = /^(\d{1,6})(KiB|MiB|GiB)\/s$/.exec(given.value) ?? [];
  const bytesPerS = Number(count) * 1024 ** (['KiB', 'MiB', 'GiB'].indexOf(unit) + 1);
  if (unit === '' || bytesPerS === 0) {
    throw new ConfigurationError(
      `Cannot use ${given.label} "${given.value}": invalid rate; write a ` +
        'number with KiB/s, MiB/s or GiB/s, such as 20MiB/s',
    );
  }
  return bytesPerS;
}

function readCountRate(given: Given, what: string, fallback: number): number {
  if (given === null) return fallback;
  const count = /^(\d{1,7})\/s$/.exec(given.value)?.[1];
  if (count === undefined || Number(count) === 0) {
    throw new ConfigurationError(
      `Cannot use ${given.label} "${given.value}": write a number of ${what} with /s, such as 2000/s`,
    );
  }
  return Number(count);
}

function readCount(given: Given, fallback: number): number {
  if (given === null) return fallback;
  if (!/^[1-9]\d{0,6}$/.test(given.value)) {
    throw new ConfigurationError(
      `Cannot use ${given.label} "${given.value}": write a whole number from 1 on, such as ${fallback}`,
    );
  }
  return Number(given.value);
}

function readBoolean(given: Given): boolean {
  switch (given?.value) {
    case undefined:
    case 'false':
    case '0':
    case 'no':
      return false;
    case 'true':
    case '1':
    case 'yes':
      return true;
    default:
      throw new ConfigurationError(`Cannot use ${given?.label} "${given?.value}": write true or false`);
  }
}

/** @param listen address of a joining server, which need not list itself among the peers */
function readPeers(source: OptionSource | undefined, id: ServerId, listen: Given): Map<ServerId, Address> {
  if ((source === undefined || source.texts.length === 0) && listen !== null) {
    const address = addressParse(listen.value);
    if (address === null || isWildcard(address.host)) {
      throw new ConfigurationError(
        `Cannot use ${listen.label} "${listen.value}" with --join: other servers cannot connect to this ` +
          `address; add --peer ${id}=HOST:PORT with the address that they use`,
      );
    }
    return new Map([[id, address]]);
  }
  if (source === undefined || source.texts.length === 0) {
    throw new ConfigurationError(
      'No servers are given: write --peer ID=HOST:PORT once for each server of the cluster, this one included',
    );
  }
  const { label } = source;
  const peers = new Map<ServerId, Address>();
  const taken = new Map<string, ServerId>();
  for (const text of source.texts) {
    const [peer = '', at = ''] = text.split(/=(.*)/s);
    const address = addressParse(at);
    if (!isServerId(peer) || address === null) {
      throw new ConfigurationError(
        `Cannot use ${label} "${text}": write ID=HOST:PORT, such as s1=127.0.0.1:7401`,
      );
    }
    if (isWildcard(address.host)) {
      throw new ConfigurationError(
        `Cannot use ${label} "${text}": other servers cannot connect to ${address.host}; write the address ` +
          `that they use, and --listen ${at}`,
      );
    }
    if (peers.has(peer)) {
      throw new ConfigurationError(`Cannot use ${label} "${text}": server ${peer} appears twice`);
    }
    const other = taken.get(addressFormat(address));
    if (other !== undefined) {
      throw new ConfigurationError(`Cannot use ${label} "${text}": server ${other} has the same address`);
    }
    peers.set(peer, address);
    taken.set(addressFormat(address), peer);
  }
  if (!peers.has(id)) {
    throw new ConfigurationError(
      `Server ${id} is not among the servers ${[...peers.keys()].join(', ')}: add --peer ${id}=HOST:PORT, or correct --id`,
    );
  }
  // The same order on all servers.
  return new Map([...peers].toSorted(([a], [b]) => serverIdCompare(a, b)));
}

function readJoin(given: Given, scheme: 'http' | 'https'): string[] {
  if (given === null) return [];
  return given.value.split(',').map((part) => {
    const text = part.trim();
    const url = URL.parse(/^[a-z]+:\/\//i.test(text) ? text : `${scheme}://${text}`);
    if (text === '' || url === null || url.protocol !== `${scheme}:`) {
      throw new ConfigurationError(
        `Cannot use ${given.label} "${given.value}": write base URLs of servers, such as ${scheme}://10.0.0.1:7401`,
      );
    }
    return url.origin;
  });
}

function readZone(given: Given): string | null {
  if (given === null) return null;
  if (!isZone(given.value))
    throw new ConfigurationError(`Cannot use ${given.label} "${given.value}": a zone ${ZONE_FORM}`);
  return given.value;
}

function readLabels(given: OptionSource | undefined): readonly string[] | null {
  if (given === undefined) return null;
  const labels = given.texts.flatMap((text) => text.split(',')).map((label) => label.trim());
  const wrong = labels.find((label) => !isLabel(label));
  if (wrong !== undefined || labels.length > LABELS_MAX) {
    throw new ConfigurationError(
      `Cannot use ${given.label} "${wrong ?? labels.join()}": a server has up to ${LABELS_MAX} labels, ` +
        'each of 1 to 32 of a-z, 0-9 and hyphens, a letter or digit first',
    );
  }
  return [...new Set(labels)].toSorted();
}

function readListen(given: Given, own: Address, id: ServerId): Address {
  if (given === null) return own;
  const listen = readAddress(given, '127.0.0.1:7401');
  // A forwarder may translate between two hosts' addresses, but not within one host.
  const sameHost = listen.host === own.host || (isLoopback(listen.host) && isLoopback(own.host));
  if (sameHost && addressFormat(listen) !== addressFormat(own)) {
    throw new ConfigurationError(
      `Cannot use ${given.label} "${given.value}": other servers connect to ${id} at ` +
        `${addressFormat(own)}; make --listen and --peer ${id}=… agree`,
    );
  }
  return listen;
}

function readCluster(given: Given): string {
  const value = given?.value ?? 'default';
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(value)) {
    throw new ConfigurationError(
      `Cannot use ${given?.label} "${value}": a name has 1 to 64 letters, digits, dots, hyphens and underscores`,
    );
  }
  return value;
}

function readCatalogMembers(given: Given, peers: ReadonlyMap<ServerId, Address>): ServerId[] {
  if (given === null) return [...peers.keys()].slice(0, CATALOG_MEMBERS_MAX);
  const members = new Set<ServerId>();
  for (const text of given.value.split(',').map((part) => part.trim())) {
    if (!isServerId(text) || !peers.has(text)) {
      throw new ConfigurationError(
        `Cannot use ${given.label} "${given.value}": unknown server "${text}"; the servers are ` +
          `${[...peers.keys()].join(', ')}`,
      );
    }
    if (members.has(text)) {
      throw new ConfigurationError(`Cannot use ${given.label} "${given.value}": ${text} appears twice`);
    }
    members.add(text);
  }
  return [...members].toSorted(serverIdCompare);
}

function readSize(given: Given, fallback: number): number {
  if (given === null) return fallback;
  const [, count = '', unit = ''] = /^(\d{1,6})(MiB|GiB)$/.exec(given.value) ?? [];
  if (Number(count) === 0) {
    throw new ConfigurationError(
      `Cannot use ${given.label} "${given.value}": invalid size; write a number with MiB or GiB, such as 256MiB`,
    );
  }
  return Number(count) * 1024 ** (unit === 'MiB' ? 2 : 3);
}

function readLogLevel(given: Given): LogLevel {
  const value = given?.value ?? 'info';
  const level = LOG_LEVELS.find((candidate) => candidate === value);
  if (level === undefined) {
    throw new ConfigurationError(
      `Cannot use ${given?.label} "${value}": the levels are ${LOG_LEVELS.join(', ')}`,
    );
  }
  return level;
}

function isWildcard(host: string): boolean {
  return host === '0.0.0.0' || /^[0:]+$/.test(host);
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line === '' ? word : `${line} ${word}`;
    }
  }
  return [...lines, line];
}
