import { systemWorld } from '../../world/system-world.ts';
// First: the library below needs it when it loads.
import 'reflect-metadata';
import { webcrypto } from 'node:crypto';
import { isIP } from 'node:net';
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  type JsonGeneralNames,
  KeyUsageFlags,
  KeyUsagesExtension,
  PemConverter,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from '@peculiar/x509';
import { type CertifiedIdentity, identityUris } from '../../wire/access.ts';

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const BACKDATE_MS = 300_000;

export interface Issued {
  readonly certificate: string;
  readonly key: string;
}

export interface Authority {
  readonly certificate: X509Certificate;
  readonly key: webcrypto.CryptoKey;
}

/** Makes the certificate authority of a cluster, which all its servers and clients trust. */
export async function issueAuthority(name: string, lifeMs: number): Promise<Issued> {
  const keys = await drawKeys();
  const certificate = await X509CertificateGenerator.createSelfSigned({
    ...validity(lifeMs),
    name: [{ CN: [name] }],
    keys,
    signingAlgorithm: ALGORITHM,
    extensions: [
      // No further authority below it.
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificate: pem(certificate), key: await exportKey(keys.privateKey) };
}

/** Parses the certificate and key of an authority, in PEM. @throws Error if they are malformed */
export async function readAuthority(certificate: string, key: string): Promise<Authority> {
  const raw = PemConverter.decodeFirst(key);
  return {
    certificate: new X509Certificate(certificate),
    key: await webcrypto.subtle.importKey('pkcs8', raw, ALGORITHM, false, ['sign']),
  };
}

/** Makes a key and a certificate for a server or client. @param hosts names and addresses of a server */
export async function issueCertificate(
  authority: Authority,
  identity: CertifiedIdentity,
  hosts: readonly string[],
  lifeMs: number,
): Promise<Issued> {
  const keys = await drawKeys();
  const names: JsonGeneralNames = [
    ...identityUris(identity).map((value) => ({ type: 'url' as const, value })),
    ...hosts.map((value) => ({ type: isIP(value) === 0 ? ('dns' as const) : ('ip' as const), value })),
  ];
  const usages = [ExtendedKeyUsage.clientAuth];
  // Servers are clients of each other; a client is never a server.
  if (identity.kind === 'server') usages.push(ExtendedKeyUsage.serverAuth);
  const certificate = await X509CertificateGenerator.create({
    ...validity(lifeMs),
    subject: [{ CN: [identity.kind === 'server' ? identity.id : identity.name] }],
    issuer: authority.certificate.subjectName,
    publicKey: keys.publicKey,
    signingKey: authority.key,
    signingAlgorithm: ALGORITHM,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension(usages),
      new SubjectAlternativeNameExtension(names),
      await SubjectKeyIdentifierExtension.create(keys.publicKey),
      await AuthorityKeyIdentifierExtension.create(authority.certificate),
    ],
  });
  return { certificate: pem(certificate), key: await exportKey(keys.privateKey) };
}

function validity(lifeMs: number) {
  const nowMs = systemWorld.wallMs();
  return {
    // Positive, and of full length.
    serialNumber: `40${systemWorld.randomBytes(15).toString('hex')}`,
    notBefore: new Date(nowMs - Math.min(BACKDATE_MS, Math.max(0, lifeMs))),
    notAfter: new Date(nowMs + lifeMs),
  };
}

function drawKeys(): Promise<webcrypto.CryptoKeyPair> {
  return webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify']);
}

async function exportKey(key: webcrypto.CryptoKey): Promise<string> {
  return `${PemConverter.encode(await webcrypto.subtle.exportKey('pkcs8', key), 'PRIVATE KEY')}\n`;
}

function pem(certificate: X509Certificate): string {
  return `${certificate.toString('pem')}\n`;
}
