/**
 * Goal: the manifests and the Helm chart of the CSI driver are valid, fit each other and the program, and grant what
 * their containers need and no more.
 * Method: the compiler checks manifests against the types of Kubernetes; the few constructs of templates that the chart
 * has are rendered here, and its default values must give the manifests.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import { parse, parseAllDocuments } from 'yaml';
import { buildProgram } from '../../client/main.ts';
import { commandsOf, programText } from '../../client/reference/program-tree.ts';
import { OPTIONS } from '../../server/config/config-options.ts';
import { ROOT } from './played-compose.ts';

const run = promisify(execFile);
const FILES = ['driver.yaml', 'controller.yaml', 'node.yaml'];
const CHART = join(ROOT, 'packaging/helm/leasehold-csi');
const KUBELET = '/var/lib/kubelet';

interface Container {
  readonly name: string;
  readonly image: string;
  readonly args: readonly string[];
  readonly securityContext: {
    readonly privileged?: boolean;
    readonly capabilities?: { readonly drop: string[] };
  };
  readonly volumeMounts: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly mountPropagation?: string;
  }[];
}

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly { readonly resources: readonly string[]; readonly verbs: readonly string[] }[];
  readonly spec?: {
    readonly template?: {
      readonly spec: {
        readonly containers: readonly Container[];
        readonly volumes: readonly {
          readonly name: string;
          readonly secret?: { readonly secretName: string };
        }[];
      };
    };
    readonly updateStrategy?: { readonly type: string };
  };
}

function documents(text: string): Manifest[] {
  return parseAllDocuments(text)
    .map((document) => {
      assert.deepEqual(document.errors, []);
      return document.toJS() as Manifest | null;
    })
    .filter((one) => one !== null);
}

const MANIFESTS = FILES.flatMap((file) =>
  documents(readFileSync(join(ROOT, 'packaging/kubernetes/csi', file), 'utf8')),
);

function find(kind: string, name: string): Manifest {
  const found = MANIFESTS.find((one) => one.kind === kind && one.metadata.name === name);
  assert.ok(found !== undefined, `${kind} ${name}`);
  return found;
}

function containersOf(manifest: Manifest): readonly Container[] {
  return manifest.spec?.template?.spec.containers ?? [];
}

const CONTROLLER = find('Deployment', 'leasehold-csi-controller');
const NODE = find('DaemonSet', 'leasehold-csi-node');
const MOUNTS = find('DaemonSet', 'leasehold-csi-mounts');

test('manifests of the CSI driver match their types', async () => {
  const cache = join(ROOT, 'node_modules/.cache');
  const folder = mkdtempSync(join(existsSync(cache) ? cache : join(ROOT, 'node_modules'), 'leasehold-csi-'));
  after(() => rmSync(folder, { recursive: true }));
  const lines = MANIFESTS.map((manifest, place) => {
    const { apiVersion, kind } = manifest;
    const [group = '', version = ''] = apiVersion.includes('/')
      ? apiVersion.split('/')
      : ['core', apiVersion];
    const module = `kubernetes-types/${group.replace('.k8s.io', '').replace('.authorization', '')}/${version}`;
    return (
      `import type { ${kind} as Kind${place} } from '${module}';\n` +
      `export const manifest${place}: Kind${place} = ${JSON.stringify(manifest)};\n`
    );
  });
  writeFileSync(join(folder, 'manifests.ts'), lines.join(''));
  const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
  const flags = ['--ignoreConfig', '--noEmit', '--strict', '--skipLibCheck', '--types', ''];
  const modules = ['--module', 'esnext', '--moduleResolution', 'bundler'];
  await run(process.execPath, [compiler, ...flags, ...modules, join(folder, 'manifests.ts')]).catch(
    (error: { readonly stdout: string }) => assert.fail(error.stdout),
  );
});

test('containers of the CSI driver have existing options, and their sockets and folders are the same', () => {
  const commands = commandsOf(programText(buildProgram(), OPTIONS));
  for (const manifest of [CONTROLLER, NODE, MOUNTS]) {
    for (const { image, args } of containersOf(manifest)) {
      if (image !== 'leasehold:latest') continue;
      const path = args[1] === 'launcher' ? 'leasehold csi launcher' : 'leasehold csi';
      const known = commands.find((one) => one.path === path)?.options.flatMap(({ names }) => names) ?? [];
      for (const word of args.filter((one) => one.startsWith('--'))) assert.ok(known.includes(word), word);
    }
  }
  const [plugin, registrar] = containersOf(NODE);
  const [launcher] = containersOf(MOUNTS);
  const optionOf = ({ args }: Container, option: string) => args[args.indexOf(option) + 1] ?? '';
  assert.ok(plugin !== undefined && registrar !== undefined && launcher !== undefined);
  assert.equal(optionOf(plugin, '--launcher'), optionOf(launcher, '--endpoint'));
  const socket = optionOf(plugin, '--endpoint').replace('unix://', '');
  assert.ok(registrar.args.includes(`--kubelet-registration-path=${socket}`));
  // A mount is where both look for it, and files of credentials, too.
  for (const container of [plugin, launcher]) {
    const mount = container.volumeMounts.find(({ name }) => name === 'kubelet');
    assert.deepEqual([mount?.mountPath, mount?.mountPropagation], [KUBELET, 'Bidirectional']);
    assert.ok(container.volumeMounts.some(({ mountPath }) => mountPath === '/credentials'));
  }
  assert.ok(optionOf(plugin, '--state-dir').startsWith(`${KUBELET}/`));
  assert.equal(MOUNTS.spec?.updateStrategy?.type, 'OnDelete', 'An update of the plugin ends no mount');
});

test('only what mounts is privileged, only the controller is an administrator, and no role reads Secrets', () => {
  for (const manifest of [CONTROLLER, NODE, MOUNTS]) {
    for (const { name, securityContext } of containersOf(manifest)) {
      const mounts = manifest !== CONTROLLER && ['plugin', 'launcher'].includes(name);
      assert.equal(securityContext.privileged === true, mounts, `${manifest.metadata.name} ${name}`);
      if (!mounts) assert.deepEqual(securityContext.capabilities?.drop, ['ALL']);
    }
    const secrets = (manifest.spec?.template?.spec.volumes ?? []).flatMap(
      ({ secret }) => secret?.secretName ?? [],
    );
    assert.deepEqual(secrets, [manifest === CONTROLLER ? 'leasehold-admin' : 'leasehold-writer']);
  }
  const rules = MANIFESTS.flatMap((one) => one.rules ?? []);
  assert.ok(rules.length > 5);
  for (const { resources, verbs } of rules) {
    assert.ok(!resources.includes('secrets') && !resources.includes('*') && !verbs.includes('*'));
  }
});

/** Renders the constructs that the chart has: values, `toJson`, `if` and `range`. */
function render(template: string, values: object): string {
  const valueAt = (path: string, item: unknown): unknown =>
    path === '.'
      ? item
      : path === '.Release.Namespace'
        ? 'leasehold'
        : path
            .replace(/^\.Values\./, '')
            .split('.')
            .reduce<unknown>((value, key) => {
              assert.ok(typeof value === 'object' && value !== null && Object.hasOwn(value, key), path);
              return (value as Record<string, unknown>)[key];
            }, values);
  const inline = (text: string, item: unknown): string =>
    text
      .replaceAll(/\{\{ toJson (\S+) \}\}/g, (_, path: string) => JSON.stringify(valueAt(path, item)))
      .replaceAll(/\{\{ (\S+) \}\}/g, (_, path: string) => String(valueAt(path, item)));
  const block = /\n *\{\{- (if|range) (\S+) \}\}((?:(?!\{\{- (?:if|range|end)\b)[\s\S])*)\n *\{\{- end \}\}/;
  let text = template.startsWith('\n') ? template : `\n${template}`;
  for (let found = block.exec(text); found !== null; found = block.exec(text)) {
    const [whole, kind, path = '', body = ''] = found;
    const value = valueAt(path, null);
    const all = kind === 'range' ? (value as unknown[]) : value ? [null] : [];
    const rendered = all.map((item) => (kind === 'range' ? inline(body, item) : body)).join('');
    text = text.replace(whole, () => rendered);
  }
  const done = inline(text, null);
  assert.doesNotMatch(done, /\{\{/, 'The chart has no other constructs');
  return done;
}

function renderChart(change: (values: Record<string, unknown>) => void = () => undefined): Manifest[] {
  const values = parse(readFileSync(join(CHART, 'values.yaml'), 'utf8')) as Record<string, unknown>;
  change(values);
  return FILES.flatMap((file) =>
    documents(render(readFileSync(join(CHART, 'templates', file), 'utf8'), values)),
  );
}

/** Without what is empty: a manifest omits it. */
function withoutEmpty(manifests: readonly Manifest[]): unknown {
  return JSON.parse(
    JSON.stringify(manifests, (key, value: unknown) =>
      ['annotations', 'mountOptions'].includes(key) && Object.keys(value as object).length === 0
        ? undefined
        : value,
    ),
  );
}

test('the Helm chart gives the manifests, and its values change them', () => {
  const chart = parse(readFileSync(join(CHART, 'Chart.yaml'), 'utf8')) as Record<string, string>;
  const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
  assert.deepEqual([chart.apiVersion, chart.name, chart.appVersion], ['v2', 'leasehold-csi', version]);
  assert.deepEqual(withoutEmpty(renderChart()), withoutEmpty(MANIFESTS));
  const changed = renderChart((values) => {
    Object.assign(values, {
      snapshots: false,
      extraArgs: ['--topology'],
      nodeArgs: ['--zone=a'],
      kubeletDir: '/k',
    });
    Object.assign(values.storageClass as object, { create: false });
  });
  const text = JSON.stringify(changed);
  assert.doesNotMatch(text, /snapshotter|volumesnapshot|StorageClass|\/var\/lib\/kubelet/);
  assert.match(text, /"--topology","--zone=a"/);
  assert.throws(() => render('{{ .Values.absent }}', {}), /absent/);
});
