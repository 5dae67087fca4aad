/** Messages of `csi.proto` as they reach the handlers: 64-bit integers are decimal texts, enums are their names. */

export type Texts = Readonly<Record<string, string>>;

export interface CapacityRange {
  readonly requiredBytes: string;
  readonly limitBytes: string;
}

export type AccessMode =
  | 'UNKNOWN'
  | 'SINGLE_NODE_WRITER'
  | 'SINGLE_NODE_READER_ONLY'
  | 'MULTI_NODE_READER_ONLY'
  | 'MULTI_NODE_SINGLE_WRITER'
  | 'MULTI_NODE_MULTI_WRITER'
  | 'SINGLE_NODE_SINGLE_WRITER'
  | 'SINGLE_NODE_MULTI_WRITER';

export interface VolumeCapability {
  readonly block?: object | null;
  readonly mount?: { readonly fsType: string; readonly mountFlags: readonly string[] } | null;
  /** A number is a mode of a later specification. */
  readonly accessMode: { readonly mode: AccessMode | number } | null;
}

export interface ContentSource {
  readonly snapshot?: { readonly snapshotId: string } | null;
  readonly volume?: { readonly volumeId: string } | null;
}

export interface Topology {
  readonly segments: Texts;
}

export interface CreateVolumeRequest {
  readonly name: string;
  readonly capacityRange: CapacityRange | null;
  readonly volumeCapabilities: readonly VolumeCapability[];
  readonly parameters: Texts;
  readonly secrets: Texts;
  readonly volumeContentSource: ContentSource | null;
  readonly accessibilityRequirements: {
    readonly requisite: readonly Topology[];
    readonly preferred: readonly Topology[];
  } | null;
  readonly mutableParameters: Texts;
}

export interface Volume {
  readonly capacityBytes: number;
  readonly volumeId: string;
  readonly volumeContext: Texts;
  readonly contentSource?: ContentSource;
  readonly accessibleTopology?: readonly Topology[];
}

export interface DeleteVolumeRequest {
  readonly volumeId: string;
  readonly secrets: Texts;
}

export interface ValidateVolumeCapabilitiesRequest {
  readonly volumeId: string;
  readonly volumeContext: Texts;
  readonly volumeCapabilities: readonly VolumeCapability[];
  readonly parameters: Texts;
  readonly secrets: Texts;
}

export interface ListRequest {
  readonly maxEntries: number;
  readonly startingToken: string;
}

export interface GetCapacityRequest {
  readonly volumeCapabilities: readonly VolumeCapability[];
  readonly parameters: Texts;
  readonly accessibleTopology: Topology | null;
}

export interface CreateSnapshotRequest {
  readonly sourceVolumeId: string;
  readonly name: string;
  readonly secrets: Texts;
  readonly parameters: Texts;
}

export interface Snapshot {
  readonly sizeBytes: number;
  readonly snapshotId: string;
  readonly sourceVolumeId: string;
  readonly creationTime: { readonly seconds: string; readonly nanos: number };
  readonly readyToUse: boolean;
}

export interface DeleteSnapshotRequest {
  readonly snapshotId: string;
  readonly secrets: Texts;
}

export interface ListSnapshotsRequest extends ListRequest {
  readonly sourceVolumeId: string;
  readonly snapshotId: string;
  readonly secrets: Texts;
}

export interface ExpandVolumeRequest {
  readonly volumeId: string;
  readonly capacityRange: CapacityRange | null;
  readonly secrets: Texts;
  readonly volumeCapability: VolumeCapability | null;
}

export interface StageRequest {
  readonly volumeId: string;
  readonly stagingTargetPath: string;
  readonly volumeCapability: VolumeCapability | null;
  readonly secrets: Texts;
  readonly volumeContext: Texts;
}

export interface UnstageRequest {
  readonly volumeId: string;
  readonly stagingTargetPath: string;
}

export interface PublishRequest extends StageRequest {
  readonly targetPath: string;
  readonly readonly: boolean;
}

export interface UnpublishRequest {
  readonly volumeId: string;
  readonly targetPath: string;
}

export interface StatsRequest {
  readonly volumeId: string;
  readonly volumePath: string;
}
