/**
 * Goal: the configuration for Prometheus reads the metrics of servers with TLS and tokens.
 * Method: the test sends the configured requests itself, to servers that know a token made as the configuration says.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Agent, request } from 'undici';
import { parse } from 'yaml';
import { emptyTokenFile, issueToken } from '../../client/certificates/token-file.ts';
import { formatTokenFile, parseTokenFile } from '../../wire/tokens.ts';
import { runCli } from '../client/run-cli.ts';
import { SecureCluster } from '../security/secure-cluster.ts';

const FILE = fileURLToPath(new URL('../../packaging/prometheus/prometheus.yml', import.meta.url));

interface Scrape {
  readonly scheme: string;
  readonly tls_config: { readonly ca_file: string };
  readonly authorization: { readonly credentials_file: string };
}

test('a scrape as configured gets metrics, and one without its token none', async (context) => {
  const text = readFileSync(FILE, 'utf8');
  const { scrape_configs } = parse(text) as { readonly scrape_configs: readonly [Scrape] };
  const [{ scheme, tls_config, authorization }] = scrape_configs;
  const [, words = ''] = /^# +leasehold (token create .+)$/m.exec(text) ?? [];

  let book = '';
  const cluster = await SecureCluster.start({
    servers: 1,
    flags: ({ folder }) => {
      book = join(folder, 'tokens.json');
      writeFileSync(book, formatTokenFile(emptyTokenFile()));
      return ['--tokens', book];
    },
  });
  const agent = new Agent({ connect: { ca: readFileSync(cluster.authority.ca) } });
  context.after(async () => {
    await agent.close();
    await cluster.stop();
  });
  const file = (name: string): string => join(cluster.authority.folder, name);
  const here: Readonly<Record<string, string>> = {
    'certs/tokens.json': book,
    [authorization.credentials_file]: file(authorization.credentials_file),
  };
  const made = await runCli(words.split(' ').map((word) => here[word] ?? word));
  assert.equal(made.code, 0, made.stderr);
  assert.ok(cluster.server('s1').reload());
  assert.equal(file(tls_config.ca_file), cluster.authority.ca);

  const scrape = async (token: string): Promise<number> => {
    const headers = { authorization: `Bearer ${token}` };
    const url = `${scheme}://127.0.0.1:${cluster.ports.get('s1')}/metrics`;
    const response = await request(url, { dispatcher: agent, headers });
    const body = await response.body.text();
    if (response.statusCode === 200) assert.match(body, /^leasehold_/m);
    return response.statusCode;
  };
  assert.equal(await scrape(readFileSync(file(authorization.credentials_file), 'utf8').trim()), 200);
  assert.equal(await scrape(issueToken({ name: 'x', role: 'read', volumes: null }, null).text), 401);
  assert.deepEqual(
    parseTokenFile(readFileSync(book, 'utf8')).tokens.map(({ role }) => role),
    ['read'],
    'It can change nothing',
  );
});
