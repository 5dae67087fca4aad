/** Servers that may hold files: those with all labels, in one of the zones; absent or empty: any server. */

export const LABELS_MAX = 16;
export const ZONES_MAX = 32;
export const LABEL_PATTERN = '^[a-z0-9][a-z0-9-]{0,31}$';
export const ZONE_PATTERN = '^[A-Za-z0-9._-]{1,63}$';
/** What messages say of a zone. */
export const ZONE_FORM = 'has 1 to 63 letters, digits, dots, hyphens and underscores';

export interface PlacementClass {
  readonly labels?: readonly string[];
  readonly zones?: readonly string[];
}

export interface LabelledServer {
  readonly zone: string;
  readonly labels?: readonly string[];
}

export function isLabel(text: string): boolean {
  return new RegExp(LABEL_PATTERN).test(text);
}

export function isZone(text: string): boolean {
  return new RegExp(ZONE_PATTERN).test(text);
}

export function isRestricted({ labels = [], zones = [] }: PlacementClass): boolean {
  return labels.length > 0 || zones.length > 0;
}

export function classFits({ labels = [], zones = [] }: PlacementClass, server: LabelledServer): boolean {
  const has = (label: string): boolean => server.labels?.includes(label) === true;
  return labels.every(has) && (zones.length === 0 || zones.includes(server.zone));
}

/** Such as "with labels ssd and fast, in zone a or b"; empty if any server fits. */
export function classText({ labels = [], zones = [] }: PlacementClass): string {
  const label = labels.length === 1 ? 'label' : 'labels';
  return [
    ...(labels.length === 0 ? [] : [`with ${label} ${labels.join(' and ')}`]),
    ...(zones.length === 0 ? [] : [`in zone ${zones.join(' or ')}`]),
  ].join(', ');
}
