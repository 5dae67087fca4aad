/** `npm run test:long` runs all tests at full length; `npm test` runs short forms, which test each rule once. */
export const isLong = process.env.LONG === '1';

/** Servers of a cluster whose tests need neither replication nor failover. */
export const SERVERS_OF_FORM = isLong ? 3 : 1;

/**
 * Why `npm test` skips a test.
 *
 * @param shownBy the test that shows the same rule in `npm test`
 */
export function onlyLong(shownBy: string): string | false {
  return isLong ? false : `npm run test:long plays it; ${shownBy} shows its rule here`;
}
