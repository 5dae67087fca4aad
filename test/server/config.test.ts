import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { bytesSizeFormat, bytesSizeParse, bytesSizeRound } from '../../base/bytes-size.ts';
import { durationFormat, durationParse } from '../../base/duration.ts';
import {
  configurationTable,
  paramsHash,
  readConfig,
  type ServerConfig,
  serverHelp,
} from '../../server/config/config.ts';
import { OPTIONS, optionEnv } from '../../server/config/config-options.ts';
import { ConfigurationError } from '../../server/config/configuration-error.ts';

const PEERS = ['--peer', 's1=127.0.0.1:7401', '--peer', 's2=127.0.0.1:7402', '--peer', 's3=127.0.0.1:7403'];
const GOOD = ['--id', 's1', '--data', '/d', ...PEERS];

type Env = Record<string, string>;

function read(argv: readonly string[], env: Env = {}, files: Env = {}): ServerConfig {
  return readConfig(argv, env, (path) => {
    const text = files[path];
    if (text === undefined) throw new Error(`ENOENT: no such file or directory, open '${path}'`);
    return text;
  });
}

function refusal(argv: readonly string[], env: Env = {}, files: Env = {}): string {
  try {
    read(argv, env, files);
  } catch (error) {
    assert.ok(error instanceof ConfigurationError, String(error));
    return error.message;
  }
  assert.fail(`Accepted: ${argv.join(' ')}`);
}

test('the minimum; everything else has a default', () => {
  const config = read(GOOD);
  assert.deepEqual(config, {
    id: 's1',
    cluster: 'default',
    listen: { host: '127.0.0.1', port: 7401 },
    peers: new Map([
      ['s1', { host: '127.0.0.1', port: 7401 }],
      ['s2', { host: '127.0.0.1', port: 7402 }],
      ['s3', { host: '127.0.0.1', port: 7403 }],
    ]),
    urls: new Map([
      ['s1', 'http://127.0.0.1:7401'],
      ['s2', 'http://127.0.0.1:7402'],
      ['s3', 'http://127.0.0.1:7403'],
    ]),
    join: [],
    zone: null,
    labels: null,
    data: '/d',
    leaseMs: 5_000,
    namedLeaseMaxMs: 15_000,
    leaseAlgorithm: 'flease',
    clockSkewMaxMs: 250,
    catalogMembers: ['s1', 's2', 's3'],
    operationTimeoutMs: 15_000,
    catalogLogBytesMax: 268_435_456,
    gcGraceMs: 3_600_000,
    leaseIdleMs: 15_000,
    scrubEveryMs: 604_800_000,
    scrubBytesPerS: 20_971_520,
    catchUpBytesPerS: Infinity,
    moveRates: { filesPerS: 400, bytesPerS: 104_857_600 },
    directWrites: 'auto',
    rebuild: false,
    replaceAfterMs: 3_600_000,
    compareEveryMs: 600_000,
    logLevel: 'info',
    clientRequestsPerS: Infinity,
    clientRequestsOpen: 2_000,
    addressConnections: 2_000,
    s3: null,
    tls: null,
    tokens: null,
    insecureNetwork: false,
    hostNames: [],
  });
});

test('a server that joins a cluster names only itself', () => {
  const join = ['--id', 's4', '--data', '/d', '--join', '127.0.0.1:7401, http://127.0.0.1:7402'];
  const config = read([...join, '--listen', '127.0.0.1:7404', '--zone', 'rack-1']);
  assert.deepEqual(config.join, ['http://127.0.0.1:7401', 'http://127.0.0.1:7402']);
  assert.deepEqual(config.peers, new Map([['s4', { host: '127.0.0.1', port: 7404 }]]));
  assert.deepEqual([config.zone, config.catalogMembers], ['rack-1', []]);
  const behind = read([...join, '--peer', 's4=127.0.0.1:7404']);
  assert.deepEqual(behind.listen, { host: '127.0.0.1', port: 7404 });
  assert.match(refusal(join), /No servers are given/);
  assert.match(refusal([...join, ...PEERS, '--peer', 's4=127.0.0.1:7404']), /--join together with --peer/);
  assert.match(
    refusal([...join, '--listen', '0.0.0.0:7404']),
    /other servers cannot connect to this address; add --peer s4=/,
  );
  assert.match(refusal(['--id', 's4', '--data', '/d', '--join', 'ftp://x']), /base URLs of servers/);
  assert.match(refusal([...GOOD, '--zone', 'a b']), /a zone has 1 to 63/);
  assert.match(refusal([...GOOD, '--direct-writes', 'never']), /--direct-writes "never": write auto or off/);
});

test('labels are given one by one or as a list, and are sorted', () => {
  const flags = ['--label', 'ssd', '--label', 'nvme,fast'];
  assert.deepEqual(read([...GOOD, ...flags]).labels, ['fast', 'nvme', 'ssd']);
  assert.deepEqual(read(GOOD, { LEASEHOLD_LABEL: 'ssd, fast' }).labels, ['fast', 'ssd']);
  const file = (text: string) => read([...GOOD, '--config', 'c.toml'], {}, { 'c.toml': text }).labels;
  assert.deepEqual(file('label = ["ssd", "fast"]'), ['fast', 'ssd']);
  assert.deepEqual(file('label = "ssd"'), ['ssd']);
  assert.match(
    refusal([...GOOD, '--label', 'SSD']),
    /--label "SSD": a server has up to 16 labels, each of 1 to 32/,
  );
  const many = Array.from({ length: 17 }, (_, index) => `l${index}`).join();
  assert.match(refusal([...GOOD, '--label', many]), /up to 16 labels/);
});

test('a flag overrides the environment, that the file, that the default', () => {
  const files = { 'c.toml': 'lease = "20s"\nclock-skew = "1s"\ncluster = "from-file"\nlog-level = "warn"' };
  const env = { LEASEHOLD_LEASE: '30s', LEASEHOLD_CLUSTER: 'from-env', LEASEHOLD_CONFIG: 'c.toml' };
  const config = read([...GOOD, '--lease=40s'], env, files);
  assert.equal(config.leaseMs, 40_000);
  assert.equal(config.cluster, 'from-env');
  assert.equal(config.logLevel, 'warn');
  assert.equal(config.clockSkewMaxMs, 1_000);
  assert.equal(config.operationTimeoutMs, 80_000, 'The default follows a long lease');
  assert.equal(
    read(GOOD, { ...env, LEASEHOLD_LEASE: '' }, files).leaseMs,
    20_000,
    'Empty is the same as unset',
  );
});

test('everything in the environment', () => {
  const config = read([], {
    LEASEHOLD_ID: 's2',
    LEASEHOLD_PEERS: 's2=s2:7402, s1=s1:7401,s3=[fd00::3]:7403',
    LEASEHOLD_LISTEN: '0.0.0.0:7402',
    LEASEHOLD_DATA: '/data',
    LEASEHOLD_INSECURE_NETWORK: '1',
    LEASEHOLD_HOST_NAMES: 'files.example, *.files.example',
    LEASEHOLD_CATALOG_MEMBERS: 's3,s1',
    LEASEHOLD_OP_TIMEOUT: '1m',
    LEASEHOLD_GC_GRACE: '1d',
    LEASEHOLD_LEASE_IDLE: '1.5h',
    LEASEHOLD_LOG_LEVEL: 'debug',
    // Another program's.
    LEASEHOLD_SERVERS: 'http://127.0.0.1:7401',
    PATH: '/bin',
  });
  assert.deepEqual([...config.peers.keys()], ['s1', 's2', 's3'], 'In the order of ids on every server');
  assert.equal(config.urls.get('s3' as never), 'http://[fd00::3]:7403');
  assert.deepEqual(config.listen, { host: '0.0.0.0', port: 7402 });
  assert.deepEqual(config.catalogMembers, ['s1', 's3']);
  assert.equal(config.operationTimeoutMs, 60_000);
  assert.equal(config.gcGraceMs, 86_400_000);
  assert.equal(config.leaseIdleMs, 5_400_000);
  assert.equal(config.logLevel, 'debug');
  assert.equal(config.insecureNetwork, true);
  assert.deepEqual(config.hostNames, ['files.example', '*.files.example']);
});

test('everything in a file', () => {
  const file = `
    id = "s1"
    data = "/data"
    insecure-network = true
    catalog-members = ["s1", "s2"]
    [peers]
    s1 = "10.0.0.1:7401"
    s2 = "10.0.0.2:7401"
  `;
  const config = read(['--config', 'leasehold.toml'], {}, { 'leasehold.toml': file });
  assert.equal(config.id, 's1');
  assert.deepEqual(config.listen, { host: '10.0.0.1', port: 7401 });
  assert.deepEqual(config.catalogMembers, ['s1', 's2']);
});

test('peers of a flag replace those of the environment, all together', () => {
  const config = read(GOOD, { LEASEHOLD_PEERS: 's1=127.0.0.1:1,s9=127.0.0.1:9' });
  assert.deepEqual([...config.peers.keys()], ['s1', 's2', 's3']);
});

/** Each refusal names option, value, reason, and remedy. */
const REFUSALS: [string, readonly string[], Env, string][] = [
  [
    'no id',
    [...PEERS, '--data', 'd'],
    {},
    'No server id is given: write --id ID, with an id that one of the --peer options has',
  ],
  [
    'no data',
    ['--id', 's1', ...PEERS],
    {},
    'No data folder is given: write --data DIR, a folder that belongs to this server alone',
  ],
  [
    'no peers',
    ['--id', 's1', '--data', 'd'],
    {},
    'No servers are given: write --peer ID=HOST:PORT once for each server of the cluster, this one included',
  ],
  [
    'a bad id',
    [...GOOD.slice(2), '--id', 'S_1'],
    {},
    'Cannot use --id "S_1": an id has 1 to 32 characters of a-z, 0-9 and inner hyphens, such as s1',
  ],
  [
    'a stranger',
    [...GOOD.slice(2), '--id', 's4'],
    {},
    'Server s4 is not among the servers s1, s2, s3: add --peer s4=HOST:PORT, or correct --id',
  ],
  [
    'a slip in a flag',
    [...GOOD, '--leas', '5s'],
    {},
    'Unknown option --leas: did you mean --lease?; see --help',
  ],
  [
    'a slip in a flag, transposed',
    [...GOOD, '--dtaa', 'x'],
    {},
    'Unknown option --dtaa: did you mean --data?; see --help',
  ],
  ['a strange flag', [...GOOD, '--frobnicate'], {}, 'Unknown option --frobnicate; see --help'],
  ['an argument', [...GOOD, 'start'], {}, 'Cannot use argument "start": options begin with --, see --help'],
  ['a flag without value', [...GOOD, '--lease'], {}, 'Option --lease has no value: write --lease TIME'],
  ['a flag before a flag', ['--id', ...GOOD], {}, 'Option --id has no value: write --id ID'],
  ['a flag twice', [...GOOD, '--id', 's2'], {}, 'Option --id is given twice: give it once'],
  [
    'a slip in the environment',
    GOOD,
    { LEASEHOLD_LAESE: '5s' },
    'Unknown environment variable LEASEHOLD_LAESE: did you mean LEASEHOLD_LEASE?',
  ],
  [
    'no duration',
    [...GOOD, '--lease', '5'],
    {},
    'Cannot use --lease "5": invalid duration; write a number with a unit ms, s, m, h or d, such as 5s or 250ms',
  ],
  [
    'no duration in the environment',
    GOOD,
    { LEASEHOLD_CLOCK_SKEW: 'often' },
    'Cannot use LEASEHOLD_CLOCK_SKEW "often": invalid duration; write a number with a unit ms, s, m, h or d, such as 5s or 250ms',
  ],
  [
    'no skew',
    [...GOOD, '--clock-skew', '0s'],
    {},
    'Cannot use --clock-skew "0s": invalid duration; write a number with a unit ms, s, m, h or d, such as 5s or 250ms',
  ],
  [
    'a lease too short for the skew',
    [...GOOD, '--lease', '1s'],
    {},
    'Cannot use --lease 1s with --clock-skew 250ms: a lease must be at least 10 times the clock skew; give a lease of 2500ms or more',
  ],
  [
    'a lease far too short',
    [...GOOD, '--lease', '50ms', '--clock-skew', '1ms'],
    {},
    'Cannot use --lease 50ms: it must lie between 1s and 10m',
  ],
  [
    'too little time for operations',
    [...GOOD, '--op-timeout', '1s'],
    {},
    'Cannot use --op-timeout 1s: it is shorter than a failover, which takes up to the lease and twice the clock skew; give 5500ms or more',
  ],
  [
    'a peer without a port',
    [...GOOD, '--peer', 's4=host'],
    {},
    'Cannot use --peer "s4=host": write ID=HOST:PORT, such as s1=127.0.0.1:7401',
  ],
  [
    'a peer without an id',
    [...GOOD, '--peer', '127.0.0.1:7404'],
    {},
    'Cannot use --peer "127.0.0.1:7404": write ID=HOST:PORT, such as s1=127.0.0.1:7401',
  ],
  [
    'a port out of range',
    [...GOOD, '--peer', 's4=h:70000'],
    {},
    'Cannot use --peer "s4=h:70000": write ID=HOST:PORT, such as s1=127.0.0.1:7401',
  ],
  [
    'a peer nowhere',
    [...GOOD, '--peer', 's4=0.0.0.0:7404'],
    {},
    'Cannot use --peer "s4=0.0.0.0:7404": other servers cannot connect to 0.0.0.0; write the address that they use, and --listen 0.0.0.0:7404',
  ],
  [
    'an id twice',
    [...GOOD, '--peer', 's3=127.0.0.1:7404'],
    {},
    'Cannot use --peer "s3=127.0.0.1:7404": server s3 appears twice',
  ],
  [
    'an address twice',
    [...GOOD, '--peer', 's4=127.0.0.1:7403'],
    {},
    'Cannot use --peer "s4=127.0.0.1:7403": server s3 has the same address',
  ],
  [
    'a bad listen address',
    [...GOOD, '--listen', '7401'],
    {},
    'Cannot use --listen "7401": write HOST:PORT, such as 127.0.0.1:7401, with a port from 1 to 65535',
  ],
  [
    'an address that is no address of a server',
    [...GOOD, '--listen', '127.0.0.1:7409'],
    {},
    'Cannot use --listen "127.0.0.1:7409": other servers connect to s1 at 127.0.0.1:7401; make --listen and --peer s1=… agree',
  ],
  [
    'an open network',
    ['--id', 's1', '--data', 'd', '--peer', 's1=10.1.2.3:7401'],
    {},
    `Cannot use address 10.1.2.3:7401: it is reachable from other machines, and without TLS and tokens every client could read and change everything. These commands create both:
  leasehold cert create-ca --dir certs
  leasehold cert create-node s1 --host 10.1.2.3 --dir certs
  leasehold token create me --role admin --tokens certs/tokens.json --out certs/me.token
Then add
  --tls-cert certs/s1.pem --tls-key certs/s1-key.pem --tls-ca certs/ca.pem --tokens certs/tokens.json
Or use loopback addresses, or give --insecure-network on a trusted network, such as a private container network or a tunnel`,
  ],
  [
    'TLS by halves',
    [...GOOD, '--tls-cert', 's1.pem'],
    {},
    'TLS needs --tls-cert, --tls-key and --tls-ca together: add --tls-key and --tls-ca',
  ],
  [
    'tokens in the clear',
    [...GOOD, '--tokens', 'tokens.json'],
    {},
    'Cannot use --tokens without TLS: tokens would be sent in clear text; add --tls-cert, --tls-key and --tls-ca',
  ],
  [
    'a rate without a unit',
    [...GOOD, '--client-rate', '100'],
    {},
    'Cannot use --client-rate "100": write a number of requests with /s, such as 2000/s',
  ],
  [
    'an unknown server in the catalog',
    [...GOOD, '--catalog-members', 's1,s7'],
    {},
    'Cannot use --catalog-members "s1,s7": unknown server "s7"; the servers are s1, s2, s3',
  ],
  [
    'a member twice',
    [...GOOD, '--catalog-members', 's1,s1'],
    {},
    'Cannot use --catalog-members "s1,s1": s1 appears twice',
  ],
  [
    'a bad cluster name',
    [...GOOD, '--cluster', 'a b'],
    {},
    'Cannot use --cluster "a b": a name has 1 to 64 letters, digits, dots, hyphens and underscores',
  ],
  [
    'a named lease that clocks could spoil',
    [...GOOD, '--named-lease-max', '2s'],
    {},
    'Cannot use --named-lease-max 2s with --clock-skew 250ms: a lease must be at least 10 times the clock skew; give a lease of 2500ms or more',
  ],
  [
    'an unknown algorithm',
    [...GOOD, '--lease-algorithm', 'raft'],
    {},
    'Cannot use --lease-algorithm "raft": the algorithms are flease and paxoslease',
  ],
  [
    'a bad level',
    [...GOOD, '--log-level', 'loud'],
    {},
    'Cannot use --log-level "loud": the levels are trace, debug, info, warn, error, fatal, silent',
  ],
  [
    'every name of a host',
    [...GOOD, '--host-names', '*'],
    {},
    'Cannot use --host-names "*": write names of hosts without ports, such as files.example.org or *.example.org',
  ],
  [
    'names of hosts with a port',
    [...GOOD, '--host-names', 'files.example:7401'],
    {},
    'Cannot use --host-names "files.example:7401": write names of hosts without ports, such as files.example.org or *.example.org',
  ],
  [
    'a bad switch',
    [...GOOD, '--insecure-network=maybe'],
    {},
    'Cannot use --insecure-network "maybe": write true or false',
  ],
  [
    'a missing file',
    [...GOOD, '--config', 'no.toml'],
    {},
    `Cannot read configuration file "no.toml" (--config): ENOENT: no such file or directory, open 'no.toml'`,
  ],
];

for (const [what, argv, env, message] of REFUSALS) {
  test(`refused: ${what}`, () => assert.equal(refusal(argv, env), message));
}

for (const [text, message] of [
  ['leese = "5s"', 'Unknown key "leese" in c.toml: did you mean lease?'],
  ['peer = "s1"', 'Unknown key "peer" in c.toml: did you mean peers?'],
  ['config = "d.toml"', 'Unknown key "config" in c.toml'],
  ['lease = 5', 'Cannot use "lease" in c.toml: it must be text in quotes, such as lease = "5s"'],
  [
    'lease = "5"',
    'Cannot use "lease" in c.toml "5": invalid duration; write a number with a unit ms, s, m, h or d, such as 5s or 250ms',
  ],
  ['insecure-network = "yes"', 'Cannot use "insecure-network" in c.toml: it must be true or false'],
  [
    'peers = ["s1"]',
    'Cannot use "peers" in c.toml: it must be a table, such as [peers] s1 = "127.0.0.1:7401"',
  ],
] as const) {
  test(`refused in a file: ${text}`, () => {
    assert.equal(refusal([...GOOD, '--config', 'c.toml'], {}, { 'c.toml': text }), message);
  });
}

test('a file that is no TOML is refused with its line', () => {
  assert.match(
    refusal(['--config', 'c.toml'], {}, { 'c.toml': 'id = "s1"\nlease = 5s' }),
    /^Cannot read "c.toml", line 2: /,
  );
});

test('the hash covers exactly what all servers must share', () => {
  const hash = (...argv: string[]): string => paramsHash(read([...GOOD, ...argv]));
  assert.equal(hash('--op-timeout', '1m', '--log-level', 'debug'), hash());
  assert.equal(
    paramsHash(
      read([
        '--id',
        's2',
        '--data',
        '/e',
        ...PEERS.toReversed().flatMap((text) => (text === '--peer' ? [] : ['--peer', text])),
      ]),
    ),
    hash(),
  );
  assert.notEqual(hash('--lease', '6s'), hash());
  assert.notEqual(hash('--clock-skew', '200ms'), hash());
  assert.notEqual(hash('--catalog-members', 's1,s2'), hash());
  assert.notEqual(hash('--named-lease-max', '10s'), hash());
  assert.notEqual(hash('--lease-algorithm', 'paxoslease'), hash());
});

test('help and page describe every option', () => {
  const help = serverHelp();
  const page = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
  for (const { name } of OPTIONS) {
    assert.ok(help.includes(`--${name}`), `--help describes --${name}`);
    assert.ok(page.includes(optionEnv(name)), `The page describes ${optionEnv(name)}`);
  }
  for (const line of help.split('\n')) assert.ok(line.length <= 90, `Fits a terminal: ${line}`);
  assert.ok(
    page.includes(configurationTable()),
    'docs/configuration.md has the table of configurationTable()',
  );
});

test('the examples on the page are accepted', () => {
  const page = readFileSync(new URL('../../docs/configuration.md', import.meta.url), 'utf8');
  const [, toml = ''] = /```toml\n(.*?)```/s.exec(page) ?? [];
  const fromFile = read(['--config', 'page.toml'], {}, { 'page.toml': toml });
  const [, shell = ''] = /```sh\n(LEASEHOLD_.*?)```/s.exec(page) ?? [];
  const env = Object.fromEntries(
    [...shell.matchAll(/^(LEASEHOLD_\w+)=(\S+)$/gm)].map(([, name, value]) => [name, value]),
  );
  const fromEnv = read([], env);
  assert.deepEqual(fromEnv, fromFile, 'Both examples say the same');
});

test('durations are read as they are written', () => {
  for (const [text, durationMs] of [
    ['250ms', 250],
    ['5s', 5_000],
    ['1.5m', 90_000],
    ['0.1s', 100],
    ['2h', 7_200_000],
    ['1d', 86_400_000],
    ['0s', 0],
  ] as const) {
    assert.equal(durationParse(text), durationMs);
    assert.equal(durationParse(durationFormat(durationMs)), durationMs);
  }
  for (const text of ['', '5', 's', '-5s', '5 s', '1e3ms', '0.5ms', '5S', '1m30s', '.5s']) {
    assert.equal(durationParse(text), null, text);
  }
  assert.equal(durationFormat(2_500), '2500ms');
  assert.equal(durationFormat(90_000), '90s');
});

test('sizes are read as they are written', () => {
  for (const [text, bytes] of [
    ['4096', 4_096],
    ['128KiB', 131_072],
    ['1.5GiB', 1_610_612_736],
    ['10MB', 10_000_000],
    ['7B', 7],
    ['0', 0],
  ] as const) {
    assert.equal(bytesSizeParse(text), bytes);
    assert.equal(bytesSizeParse(bytesSizeFormat(bytes)), bytes);
  }
  for (const text of ['', 'KiB', '-1', '1 KiB', '1K', '0.3B', '1kb'])
    assert.equal(bytesSizeParse(text), null, text);
  assert.equal(bytesSizeFormat(131_072), '128KiB');
  assert.equal(bytesSizeRound(1_503_238_553), '1.4 GiB');
  assert.equal(bytesSizeRound(12), '12 B');
});

test('an address beyond this machine needs TLS and tokens, or an explicit option', () => {
  const open = ['--id', 's1', '--peer', 's1=10.1.2.3:7401', '--data', '/d'];
  const tls = ['--tls-cert', 'c', '--tls-key', 'k', '--tls-ca', 'a'];
  const read = (...flags: string[]) => readConfig([...open, ...flags], {}, () => '');
  assert.throws(() => read(), ConfigurationError);
  assert.throws(() => read(...tls), /without tokens every client/);
  const config = read(...tls, '--tokens', 't');
  assert.deepEqual(config.tls, { cert: 'c', key: 'k', ca: 'a' });
  assert.deepEqual([...config.urls.values()], ['https://10.1.2.3:7401']);
  assert.deepEqual([...read('--insecure-network').urls.values()], ['http://10.1.2.3:7401']);
});

test('variables of clients are ignored by the server, and not reported as misspelled', () => {
  const env = { LEASEHOLD_TOKEN: 'x', LEASEHOLD_CA: 'ca.pem', LEASEHOLD_TOKEN_FILE: 'y' };
  assert.equal(readConfig(GOOD, env, () => '').tokens, null);
});
