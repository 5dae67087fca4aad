import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import type { ServerId } from '../../base/ids.ts';
import type { Role } from '../../wire/access.ts';
import { formatTokenFile, type TokenFile, tokenParts } from '../../wire/tokens.ts';
import { systemWorld } from '../../world/system-world.ts';
import { isSystemError } from '../terminal/failure.ts';
import {
  AUTHORITY_FOLDER,
  type CredentialHolders,
  PUBLIC_MODE,
  SECRET_MODE,
  writeAtomically,
} from './files.ts';
import { type Authority, issueAuthority, issueCertificate, readAuthority } from './issue.ts';
import { emptyTokenFile, issueToken, readTokenFile, writeTokenFile } from './token-file.ts';

const DAY_MS = 86_400_000;
const AUTHORITY_LIFE_MS = 3_650 * DAY_MS;
const SERVER_LIFE_MS = 365 * DAY_MS;
const RENEWED_BEFORE_MS = 30 * DAY_MS;

/**
 * Makes the missing credentials of a whole cluster, a folder for each holder, and keeps valid ones: so it can run at
 * every start, and resumes where it was interrupted.
 *
 * - `authority`: `ca.pem`, `ca-key.pem`, and `tokens.json`, of which servers have copies
 * - of a server: `ca.pem`, `node.pem`, `node-key.pem`, `tokens.json`
 * - of a client: `ca.pem`, `token`
 * @returns the files that were written, below `dir`
 */
export async function completeCredentials(
  dir: string,
  { servers, clients }: CredentialHolders,
): Promise<string[]> {
  const folder = new Folder(dir);
  const authority = await completeAuthority(folder);
  const tokens = await completeTokens(folder, clients);
  for (const [id, hosts] of servers) {
    await folder.ensureFile(join(id, 'ca.pem'), authority.text, PUBLIC_MODE);
    await folder.ensureFile(join(id, 'tokens.json'), formatTokenFile(tokens), SECRET_MODE);
    if (await isCertificateGood(folder, id, hosts, authority.text)) continue;
    const { certificate, key } = await issueCertificate(
      authority.signer,
      { kind: 'server', id },
      hosts,
      SERVER_LIFE_MS,
    );
    // The certificate comes last: if it exists and fits its key, the server's folder is complete.
    await folder.ensureFile(join(id, 'node-key.pem'), key, SECRET_MODE);
    await folder.ensureFile(join(id, 'node.pem'), certificate, PUBLIC_MODE);
  }
  for (const name of clients.keys())
    await folder.ensureFile(join(name, 'ca.pem'), authority.text, PUBLIC_MODE);
  return folder.written;
}

class Folder {
  readonly dir: string;
  readonly written: string[] = [];

  constructor(dir: string) {
    this.dir = dir;
  }

  async read(name: string): Promise<string | null> {
    try {
      return await readFile(join(this.dir, name), 'utf8');
    } catch (error) {
      if (isSystemError(error) && error.code === 'ENOENT') return null;
      throw error;
    }
  }

  async ensureFile(name: string, text: string, mode: number): Promise<void> {
    if ((await this.read(name)) === text) return;
    await writeAtomically(join(this.dir, name), text, mode);
    this.written.push(name);
  }
}

async function completeAuthority(
  folder: Folder,
): Promise<{ readonly text: string; readonly signer: Authority }> {
  const certificateName = join(AUTHORITY_FOLDER, 'ca.pem');
  const keyName = join(AUTHORITY_FOLDER, 'ca-key.pem');
  // The certificate is written last, so if it exists, so does the key.
  if ((await folder.read(certificateName)) === null) {
    const { certificate, key } = await issueAuthority('Leasehold CA', AUTHORITY_LIFE_MS);
    await folder.ensureFile(keyName, key, SECRET_MODE);
    await folder.ensureFile(certificateName, certificate, PUBLIC_MODE);
  }
  const [text, key] = [await folder.read(certificateName), await folder.read(keyName)];
  if (text === null || key === null) throw new Error(`Cannot sign: ${join(folder.dir, keyName)} is missing`);
  return { text, signer: await readAuthority(text, key) };
}

/** Creates the missing tokens of clients; one whose text is lost, or whose role differs, is replaced. */
async function completeTokens(folder: Folder, clients: ReadonlyMap<string, Role>): Promise<TokenFile> {
  const path = join(AUTHORITY_FOLDER, 'tokens.json');
  const before = await readTokenFile(join(folder.dir, path));
  let file = before ?? emptyTokenFile();
  for (const [name, role] of clients) {
    const text = (await folder.read(join(name, 'token')))?.trim() ?? '';
    const known = file.tokens.find((token) => token.name === name);
    if (known !== undefined && known.role === role && tokenParts(text)?.id === known.id) continue;
    const drawn = issueToken({ name, role, volumes: null }, null);
    await folder.ensureFile(join(name, 'token'), `${drawn.text}\n`, SECRET_MODE);
    file = { ...file, tokens: [...file.tokens.filter((token) => token !== known), drawn.known] };
  }
  if (before === null || file !== before) {
    await writeTokenFile(join(folder.dir, path), file);
    folder.written.push(path);
  }
  return file;
}

/** Whether a server has a certificate of this authority that fits its key and its hosts, and does not end soon. */
async function isCertificateGood(
  folder: Folder,
  id: ServerId,
  hosts: readonly string[],
  ca: string,
): Promise<boolean> {
  const text = await folder.read(join(id, 'node.pem'));
  const key = await folder.read(join(id, 'node-key.pem'));
  if (text === null || key === null) return false;
  const certificate = new X509Certificate(text);
  return (
    certificate.verify(new X509Certificate(ca).publicKey) &&
    certificate.checkPrivateKey(createPrivateKey(key)) &&
    certificate.validToDate.getTime() - systemWorld.wallMs() > RENEWED_BEFORE_MS &&
    hosts.every((host) => (isIP(host) === 0 ? certificate.checkHost(host) : certificate.checkIP(host)))
  );
}
