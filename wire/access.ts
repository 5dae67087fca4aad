import { isServerId, type ServerId } from '../base/ids.ts';

/** What somebody may do: look; change contents and names; change the cluster. Each may do what those before it may. */
export const ROLES = ['read', 'write', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** Names of tokens and of client certificates: they stand in logs. */
const NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
const VOLUME = /^[a-z0-9][a-z0-9._-]{0,62}$/;

/** What a client may do, and where. */
export interface Grant {
  readonly name: string;
  readonly role: Role;
  /** Null for all volumes, and for what belongs to none. */
  readonly volumes: readonly string[] | null;
}

/** For whom a certificate of the cluster was made. */
export type CertifiedIdentity =
  | { readonly kind: 'server'; readonly id: ServerId }
  | ({ readonly kind: 'client' } & Grant);

export function isRole(text: unknown): text is Role {
  return ROLES.some((role) => role === text);
}

export function isGrantName(text: unknown): text is string {
  return typeof text === 'string' && NAME.test(text);
}

export function isVolumeName(text: unknown): text is string {
  return typeof text === 'string' && VOLUME.test(text);
}

/** @returns whether `text` names a volume, or a snapshot of one: `volume@snapshot` */
export function isTreeName(text: unknown): text is string {
  if (typeof text !== 'string') return false;
  const [volume, snapshot, ...more] = text.split('@');
  return isVolumeName(volume) && (snapshot === undefined || isVolumeName(snapshot)) && more.length === 0;
}

/** @returns whether `role` includes what `wanted` may do */
export function roleIncludes(role: Role, wanted: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(wanted);
}

const SERVER = 'urn:leasehold:server:';
const CLIENT = 'urn:leasehold:client:';
const ROLE = 'urn:leasehold:role:';
const VOLUME_PREFIX = 'urn:leasehold:volume:';

/** @returns the URIs by which a certificate says whose it is, among its alternative names */
export function identityUris(identity: CertifiedIdentity): string[] {
  if (identity.kind === 'server') return [SERVER + identity.id];
  const { name, role, volumes } = identity;
  return [CLIENT + name, ROLE + role, ...(volumes ?? []).map((volume) => VOLUME_PREFIX + volume)];
}

/** @returns whose certificate it is; null where its URIs name nobody, or more than one */
export function identityOfUris(uris: readonly string[]): CertifiedIdentity | null {
  const [server, secondServer] = behind(uris, SERVER);
  const [name, secondName] = behind(uris, CLIENT);
  const [role, secondRole] = behind(uris, ROLE);
  const volumes = behind(uris, VOLUME_PREFIX);
  if (secondServer !== undefined || secondName !== undefined || secondRole !== undefined) return null;
  if (server !== undefined) {
    const alone = name === undefined && role === undefined && volumes.length === 0;
    return alone && isServerId(server) ? { kind: 'server', id: server } : null;
  }
  if (!isGrantName(name) || !isRole(role) || !volumes.every(isVolumeName)) return null;
  return { kind: 'client', name, role, volumes: volumes.length === 0 ? null : volumes };
}

/**
 * @param text alternative names as Node prints them: `URI:urn:…, DNS:s1, IP Address:127.0.0.1`; what has a comma or
 *   a quote in it stands in quotes, and is none of ours
 */
export function urisOfNames(text: string): string[] {
  const names = text.match(/(?:[^,"]|"(?:[^"\\]|\\.)*")+/g) ?? [];
  return names.map((name) => name.trim()).flatMap((name) => (name.startsWith('URI:') ? [name.slice(4)] : []));
}

function behind(uris: readonly string[], prefix: string): string[] {
  return uris.filter((uri) => uri.startsWith(prefix)).map((uri) => uri.slice(prefix.length));
}
