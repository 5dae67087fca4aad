import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { isServerId } from '../../base/ids.ts';
import {
  type CertifiedIdentity,
  isCredentialName,
  isRole,
  isVolumeName,
  ROLES,
  type Role,
} from '../../wire/access.ts';
import { type RevokedCertificate, serialText } from '../../wire/tokens.ts';
import { systemWorld } from '../../world/system-world.ts';
import {
  AUTHORITY_FOLDER,
  type CredentialHolders,
  PUBLIC_MODE,
  refuseExisting,
  SECRET_MODE,
  writeAtomically,
} from '../certificates/files.ts';
import type { Authority, Issued } from '../certificates/issue.ts';
import { knownTokens, RELOAD_HINT, tokensOption, writeTokenFile } from '../certificates/token-file.ts';
import {
  CommandFailure,
  EXIT_NOT_FOUND,
  EXIT_USAGE,
  isSystemError,
  notFoundFailure,
  usageFailure,
} from '../terminal/failure.ts';
import { printLine, printText } from '../terminal/output.ts';
import { clusterCommand, wholeNumber } from './cluster-command.ts';

const SERIAL = /^(?:[0-9A-Fa-f]{2}:?){8,20}$/;
const DAYS_MAX = 36_500;
const DAY_MS = 86_400_000;
const AUTHORITY_DAYS = '3650';
const NODE_DAYS = '365';
const CLIENT_DAYS = '90';
const OWN_HOSTS = ['localhost', '127.0.0.1', '::1'];
const HOST = /^(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?$/;

interface CertOptions {
  readonly dir: string;
  readonly days: number;
  readonly force?: true;
}

/** `leasehold cert`: an own certificate authority, and what it signs. It needs no running cluster. */
export function addCertCommands(program: Command): void {
  const cert = program
    .command('cert')
    .description('make the certificates of a cluster: its authority, its servers, its clients');

  withCommonOptions(cert.command('create-ca'), AUTHORITY_DAYS)
    .description(
      'create the certificate authority of a cluster: ca.pem for all machines, ca-key.pem to be kept off all servers',
    )
    .option('--name <text>', 'its name in certificates', 'Leasehold CA')
    .action(async ({ dir, force, name, ...rest }: CertOptions & { readonly name: string }) => {
      const { issueAuthority } = await issuing();
      await writeIssued(dir, 'ca', force === true, () => issueAuthority(name, rest.days * DAY_MS));
      printLine(`Keep ${join(dir, 'ca-key.pem')} off all servers: it signs certificates of any identity`);
    });

  withCommonOptions(cert.command('create-node'), NODE_DAYS)
    .description('make the certificate of a server')
    .argument('<id>', 'id of the server', serverId)
    .option('--host <name>', 'host name or address of the server; may be repeated', collectHost, [])
    .action(async (id: ReturnType<typeof serverId>, options: CertOptions & { readonly host: string[] }) => {
      const hosts = [...new Set([...options.host, ...OWN_HOSTS])];
      await sign(options, id, { kind: 'server', id }, hosts);
    });

  withCommonOptions(cert.command('create-client'), CLIENT_DAYS)
    .description('make a certificate that a client can use instead of a token')
    .argument('<name>', 'name of the client, shown in logs', credentialName)
    .addOption(roleOption())
    .option(
      '--volume <name>',
      'restrict it to this volume; may be repeated (default: all)',
      collectVolume,
      [],
    )
    .action(
      async (
        name: string,
        options: CertOptions & { readonly role: Role; readonly volume: readonly string[] },
      ) => {
        const volumes = options.volume.length === 0 ? null : options.volume;
        const identity = { kind: 'client', name, role: options.role, volumes } as const;
        await sign(options, name, identity, []);
      },
    );

  addCredentialsCommand(cert);
  addRevokedCommand(cert);

  tokensOption(cert.command('revoke'))
    .description(
      'revoke the certificate of a client or server; takes effect when servers reload the token file',
    )
    .argument('<certificate>', 'its file, or its serial number as logs show it')
    .action(async (text: string, { tokens }: { readonly tokens: string }) => {
      const known = await knownTokens(tokens);
      const entry = await revokedCertificate(text);
      const nowMs = systemWorld.wallMs();
      // Expired certificates need no entry.
      const others = known.revoked.filter(
        ({ serial, expiresAt }) =>
          serial !== entry.serial && (expiresAt === null || Date.parse(expiresAt) > nowMs),
      );
      await writeTokenFile(tokens, { ...known, revoked: [...others, entry] });
      const whose = entry.name === null ? '' : ` of ${entry.name}`;
      printLine(`Certificate ${entry.serial}${whose} is revoked in ${tokens}: ${RELOAD_HINT}`);
    });
}

function addRevokedCommand(cert: Command): void {
  clusterCommand(cert, 'revoked', 'list the certificates that the servers have as revoked')
    .option('--out <file>', 'write them to a file, which clients take with --revoked')
    .run(async (client, call, { out }: { readonly out?: string }) => {
      const list = await client.admin.revokedCertificates(call);
      const text = `${JSON.stringify(list, null, 2)}\n`;
      if (out === undefined) return printText(text);
      await writeAtomically(out, text, PUBLIC_MODE);
    });
}

async function revokedCertificate(text: string): Promise<RevokedCertificate> {
  const revokedAt = new Date(systemWorld.wallMs()).toISOString();
  if (SERIAL.test(text)) return { serial: serialText(text), name: null, revokedAt, expiresAt: null };
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(await readFile(text));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new CommandFailure(
      isSystemError(error) && error.code === 'ENOENT' ? EXIT_NOT_FOUND : EXIT_USAGE,
      `Cannot read "${text}" as a certificate: ${why}`,
      'name its file, such as certs/alice.pem, or its serial number as the log shows it',
    );
  }
  return {
    serial: serialText(certificate.serialNumber),
    name: /^CN=(.*)$/m.exec(certificate.subject)?.[1] ?? null,
    revokedAt,
    expiresAt: certificate.validToDate.toISOString(),
  };
}

function addCredentialsCommand(cert: Command): void {
  cert
    .command('create-cluster')
    .description('create the missing credentials of a cluster, one folder for each server and client')
    .argument('<id...>', 'ids of the servers')
    .option('--dir <folder>', 'where the folders are created', '.')
    .option(
      '--host <id=name>',
      'host name or address of a server, besides its id; may be repeated',
      collectServerHost,
      [],
    )
    .option(
      '--client <name=role>',
      'client that gets a token for all volumes; may be repeated (default: admin=admin)',
      collectClient,
      [],
    )
    .action(
      async (
        ids: readonly string[],
        options: {
          readonly dir: string;
          readonly host: readonly (readonly [id: string, host: string])[];
          readonly client: readonly (readonly [name: string, role: Role])[];
        },
      ) => {
        const { completeCredentials } = await import('../certificates/credentials.ts');
        const written = await completeCredentials(options.dir, credentialHolders(ids, options));
        for (const name of written) printLine(join(options.dir, name));
        if (written.length === 0) printLine(`${options.dir} is complete: nothing was created`);
      },
    );
}

function credentialHolders(
  ids: readonly string[],
  options: {
    readonly host: readonly (readonly [id: string, host: string])[];
    readonly client: readonly (readonly [name: string, role: Role])[];
  },
): CredentialHolders {
  const clients: CredentialHolders['clients'] = new Map(
    options.client.length === 0 ? [['admin', 'admin']] : options.client,
  );
  const servers = new Map(
    ids.map((text) => {
      const id = serverId(text);
      const own = options.host.filter(([server]) => server === id).map(([, name]) => name);
      return [id, [...new Set([id, ...own, ...OWN_HOSTS])]] as const;
    }),
  );
  const stray = options.host.find(([id]) => !ids.includes(id));
  if (stray !== undefined) throw usageFailure(`--host names the unknown server "${stray[0]}"`);
  const folders = [AUTHORITY_FOLDER, ...ids, ...clients.keys()];
  const twice = folders.find((name, place) => folders.indexOf(name) !== place);
  if (twice !== undefined) {
    throw usageFailure(`Two of them would use the folder "${twice}": choose other names`);
  }
  return { servers, clients };
}

export function roleOption(): Option {
  return new Option(
    '--role <role>',
    'what it may do: read files, also write files, or also administer the cluster',
  )
    .choices(ROLES)
    .makeOptionMandatory();
}

function withCommonOptions(command: Command, daysDefault: string): Command {
  return command
    .option('--dir <folder>', 'folder with ca.pem and ca-key.pem, and for the new files', '.')
    .option('--days <count>', 'how long it is valid', wholeNumber(1, DAYS_MAX), Number(daysDefault))
    .option('--force', 'replace files that are there');
}

/** Loaded on demand: the certificate library takes longer to load than all other commands. */
function issuing(): Promise<typeof import('../certificates/issue.ts')> {
  return import('../certificates/issue.ts');
}

async function sign(
  { dir, force, days }: CertOptions,
  name: string,
  identity: CertifiedIdentity,
  hosts: readonly string[],
): Promise<void> {
  if (name === 'ca') {
    throw usageFailure('Cannot call it "ca": its files would be those of the authority');
  }
  const { issueCertificate, readAuthority } = await issuing();
  await writeIssued(dir, name, force === true, async () => {
    const authority: Authority = await readAuthority(
      await authorityFile(dir, 'ca.pem'),
      await authorityFile(dir, 'ca-key.pem'),
    );
    return issueCertificate(authority, identity, hosts, days * DAY_MS);
  });
}

async function authorityFile(dir: string, name: string): Promise<string> {
  try {
    return await readFile(join(dir, name), 'utf8');
  } catch (error) {
    if (!isSystemError(error) || error.code !== 'ENOENT') throw error;
    throw notFoundFailure(
      `Cannot sign: there is no ${join(dir, name)}`,
      '"leasehold cert create-ca" makes an authority, --dir says where it is',
    );
  }
}

async function writeIssued(
  dir: string,
  name: string,
  force: boolean,
  issue: () => Promise<Issued>,
): Promise<void> {
  const certificateFile = join(dir, `${name}.pem`);
  const keyFile = join(dir, `${name}-key.pem`);
  await refuseExisting([certificateFile, keyFile], force);
  const { certificate, key } = await issue();
  await writeAtomically(keyFile, key, SECRET_MODE);
  await writeAtomically(certificateFile, certificate, PUBLIC_MODE);
  printLine(`Wrote ${certificateFile} and ${keyFile}`);
}

function serverId(text: string) {
  if (isServerId(text)) return text;
  throw new InvalidArgumentError('An id has 1 to 32 characters of a-z, 0-9 and inner hyphens, such as s1.');
}

export function credentialName(text: string): string {
  if (isCredentialName(text)) return text;
  throw new InvalidArgumentError('A name has 1 to 63 characters of a-z, 0-9, dots, hyphens and underscores.');
}

export function collectVolume(text: string, before: readonly string[]): string[] {
  if (isVolumeName(text)) return [...before, text];
  throw new InvalidArgumentError('It is no valid volume name.');
}

function collectHost(text: string, before: readonly string[]): string[] {
  if (isIP(text) !== 0 || HOST.test(text)) return [...before, text];
  throw new InvalidArgumentError(
    'It is a name or an address, such as fs1.example.org or 10.0.0.1, without a port.',
  );
}

function collectServerHost(
  text: string,
  before: readonly (readonly [string, string])[],
): (readonly [string, string])[] {
  const [id, name] = pairOf(text);
  return [...before, ...collectHost(name, []).map((one) => [serverId(id), one] as const)];
}

/** @returns what is before and after the first `=` */
function pairOf(text: string): [string, string] {
  const at = text.indexOf('=');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

function collectClient(
  text: string,
  before: readonly (readonly [string, Role])[],
): (readonly [string, Role])[] {
  const [name, role] = pairOf(text);
  if (isRole(role)) return [...before, [credentialName(name), role]];
  throw new InvalidArgumentError(
    `It is a name and one of the roles ${ROLES.join(', ')}, such as backup=read.`,
  );
}
