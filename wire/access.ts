import { isServerId, type ServerId } from '../base/ids.ts';

/** Roles: read; change contents and names; change the cluster. Each includes the previous ones. */
export const ROLES = ['read', 'write', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** Names of tokens and client certificates, as they appear in logs. */
const NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const VOLUME = /^[a-z0-9][a-z0-9._-]{0,62}$/;

export interface Grant {
  readonly name: string;
  readonly role: Role;
  /** Null: all volumes, and requests without a volume. */
  readonly volumes: readonly string[] | null;
}

/** The subject of a cluster certificate. */
export type CertifiedIdentity =
  | { readonly kind: 'server'; readonly id: ServerId }
  | ({ readonly kind: 'client' } & Grant);

export function isRole(text: unknown): text is Role {
  return ROLES.some((role) => role === text);
}

export function isCredentialName(text: unknown): text is string {
  return typeof text === 'string' && NAME.test(text);
}

export function isVolumeName(text: unknown): text is string {
  return typeof text === 'string' && VOLUME.test(text);
}

/** Whether the text is `VOLUME` or `VOLUME@SNAPSHOT`. */
export function isTreeName(text: unknown): text is string {
  if (typeof text !== 'string') return false;
  const [volume, snapshot, ...more] = text.split('@');
  return isVolumeName(volume) && (snapshot === undefined || isVolumeName(snapshot)) && more.length === 0;
}

export function roleIncludes(role: Role, wanted: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(wanted);
}

const SERVER = 'urn:leasehold:server:';
const CLIENT = 'urn:leasehold:client:';
const ROLE = 'urn:leasehold:role:';
const VOLUME_PREFIX = 'urn:leasehold:volume:';

/** @returns the URIs that identify the subject among a certificate's alternative names */
export function identityUris(identity: CertifiedIdentity): string[] {
  if (identity.kind === 'server') return [SERVER + identity.id];
  const { name, role, volumes } = identity;
  return [CLIENT + name, ROLE + role, ...(volumes ?? []).map((volume) => VOLUME_PREFIX + volume)];
}

/** @returns the certificate's subject; null if its URIs identify none or several */
export function identityOfUris(uris: readonly string[]): CertifiedIdentity | null {
  const [server, secondServer] = withoutPrefix(uris, SERVER);
  const [name, secondName] = withoutPrefix(uris, CLIENT);
  const [role, secondRole] = withoutPrefix(uris, ROLE);
  const volumes = withoutPrefix(uris, VOLUME_PREFIX);
  if (secondServer !== undefined || secondName !== undefined || secondRole !== undefined) return null;
  if (server !== undefined) {
    const alone = name === undefined && role === undefined && volumes.length === 0;
    return alone && isServerId(server) ? { kind: 'server', id: server } : null;
  }
  if (!isCredentialName(name) || !isRole(role) || !volumes.every(isVolumeName)) return null;
  return { kind: 'client', name, role, volumes: volumes.length === 0 ? null : volumes };
}

/** @param text Node's form: `URI:urn:…, DNS:s1`; names with a comma or quote are quoted and never this cluster's */
export function urisOfNames(text: string): string[] {
  const names = text.match(/(?:[^,"]|"(?:[^"\\]|\\.)*")+/g) ?? [];
  return names.map((name) => name.trim()).flatMap((name) => (name.startsWith('URI:') ? [name.slice(4)] : []));
}

function withoutPrefix(uris: readonly string[], prefix: string): string[] {
  return uris.filter((uri) => uri.startsWith(prefix)).map((uri) => uri.slice(prefix.length));
}
