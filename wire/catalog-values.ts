import { LABEL_PATTERN, LABELS_MAX, ZONE_PATTERN, ZONES_MAX } from './placement-class.ts';
import { RETENTION_MS_MAX } from './request-limits.ts';
import { type Static, Type } from './schema.ts';

/** Values that several commands and queries of the catalog contain. */

export const Inode = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
/** Number of a volume's catalog. */
export const Catalog = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
/** Since 1970, as decimal text. */
export const Nanoseconds = Type.String({ pattern: '^-?[0-9]{1,20}$' });
export const Mode = Type.Integer({ minimum: 0, maximum: 0o7777 });
export const Path = Type.String({ maxLength: 16_384 });
export const Owner = Type.Integer({ minimum: 0, maximum: 0xffff_ffff });
export const Bytes = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });

export const VolumeName = Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,62}$' });
export const Replicas = Type.Integer({ minimum: 1, maximum: 15 });
export const ObjectBytes = Type.Integer({ minimum: 4096, maximum: 4 * 1024 * 1024 });
/** At most a century: times in nanoseconds have 64 bits. */
export const TrashMs = Type.Integer({ minimum: 0, maximum: 3_155_760_000_000 });

/** As `Retention` of retention.ts. */
export const Retention = Type.Union([
  Type.Object({ untilNs: Nanoseconds }),
  Type.Object({ forMs: Type.Integer({ minimum: 1, maximum: RETENTION_MS_MAX }) }),
]);

export const Policy = Type.Union([Type.Literal('quorum'), Type.Literal('all'), Type.Literal('read-only')]);
export type Policy = Static<typeof Policy>;

export const ServerName = Type.String({ pattern: '^[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?$' });
export const ServerUrl = Type.String({ pattern: '^https?://[^/?#\\s]+$', maxLength: 300 });
/** Label of servers that fail together (rack, power supply); empty if none. */
export const Zone = Type.String({ pattern: '^[A-Za-z0-9._-]{0,63}$' });
export const Members = Type.Array(ServerName, { minItems: 1, maxItems: 30 });

/** `in`: takes new replicas. `draining`: its replicas are moved away. `out`: removed; does not rejoin by itself. */
export const ServerStates = Type.Union([Type.Literal('in'), Type.Literal('draining'), Type.Literal('out')]);

/** Properties of servers, such as the kind of their disks. */
export const Labels = Type.Array(Type.String({ pattern: LABEL_PATTERN }), { maxItems: LABELS_MAX });
export const ClassZones = Type.Array(Type.String({ pattern: ZONE_PATTERN }), { maxItems: ZONES_MAX });

/** Settings of a new volume. */
export const VOLUME_SETTINGS = {
  replicas: Replicas,
  objectBytes: ObjectBytes,
  mode: Type.Optional(Mode),
  uid: Type.Optional(Owner),
  gid: Type.Optional(Owner),
  policy: Type.Optional(Policy),
  quotaBytes: Type.Optional(Bytes),
  quotaInodes: Type.Optional(Bytes),
  /** Milliseconds that unlinked files are kept; 0 or absent: not at all. */
  trashMs: Type.Optional(TrashMs),
  /** Servers that may hold the files; absent or empty: any. */
  labels: Type.Optional(Labels),
  zones: Type.Optional(ClassZones),
};
export const VolumeSettings = Type.Object(VOLUME_SETTINGS);
export type VolumeSettings = Static<typeof VolumeSettings>;
