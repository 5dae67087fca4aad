import { InvalidArgumentError } from 'commander';
import {
  isLabel,
  isZone,
  LABELS_MAX,
  type PlacementClass,
  ZONE_FORM,
  ZONES_MAX,
} from '../../wire/placement-class.ts';

export interface PlacementOptions {
  readonly labels?: string[];
  readonly zones?: string[];
}

/** Arguments of `Command.option`. */
export const LABELS = [
  '--labels <labels>',
  'only servers with all these labels, such as ssd,fast; none: any',
  labelsOption,
] as const;
export const ZONES = [
  '--zones <zones>',
  'only servers in one of these zones, such as a,b; none: any',
  zonesOption,
] as const;

export function placementOf({ labels, zones }: PlacementOptions): { labels?: string[]; zones?: string[] } {
  return { ...(labels === undefined ? {} : { labels }), ...(zones === undefined ? {} : { zones }) };
}

export function labelsOption(text: string): string[] {
  const labels = listOf(text);
  if (labels.every(isLabel) && labels.length <= LABELS_MAX) return labels;
  throw new InvalidArgumentError(
    'A label has 1 to 32 of a-z, 0-9 and hyphens, a letter or digit first; several are separated by commas.',
  );
}

function zonesOption(text: string): string[] {
  const zones = listOf(text);
  if (zones.every(isZone) && zones.length <= ZONES_MAX) return zones;
  throw new InvalidArgumentError(`A zone ${ZONE_FORM}; several are separated by commas.`);
}

function listOf(text: string): string[] {
  return text === 'none' ? [] : [...new Set(text.split(',').map((word) => word.trim()))];
}

export function placementText({ labels = [], zones = [] }: PlacementClass): string {
  return [...labels, ...zones.map((zone) => `zone ${zone}`)].join(', ') || '–';
}
