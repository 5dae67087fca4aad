/** The data of a chart; `svg.ts` draws it. */
export interface Axis {
  readonly label: string;
  readonly scale: 'linear' | 'log';
}

export interface Point {
  readonly x: number;
  readonly y: number;
  /** Smallest and largest of several runs, if there were several. */
  readonly low?: number;
  readonly high?: number;
}

export interface Series {
  readonly name: string;
  readonly points: readonly Point[];
}

/** A value to compare with, drawn as a dashed line across. */
export interface Reference {
  readonly label: string;
  readonly y: number;
}

/** Bars have `categories`: the x of a point is the index of its category. */
export type Chart =
  | {
      readonly kind: 'lines';
      readonly title: string;
      readonly x: Axis;
      readonly y: Axis;
      readonly series: readonly Series[];
      readonly references: readonly Reference[];
    }
  | {
      readonly kind: 'bars';
      readonly title: string;
      readonly categories: readonly string[];
      readonly y: Axis;
      readonly series: readonly Series[];
      readonly references: readonly Reference[];
    };
