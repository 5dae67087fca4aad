/** The sections of the benchmark, in the order in which they run. */
export const SECTION_NAMES = [
  'batches',
  'processes',
  'groups',
  'disk',
  'single',
  'peers',
  'memory',
  'renewals',
] as const;

export type SectionName = (typeof SECTION_NAMES)[number];
