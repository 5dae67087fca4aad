/** The sections of the benchmark, in the order in which they run. */
export const SECTION_NAMES = ['reads', 'writes', 'failover', 'reset'] as const;

export type SectionName = (typeof SECTION_NAMES)[number];
