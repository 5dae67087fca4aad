/** Request header: the holder's secret, a random integer from 1 to 2^53 − 1. */
export const HEADER_SESSION = 'leasehold-session';
/** Response header: the holder's fencing token; 0 without a holder. */
export const HEADER_TOKEN = 'leasehold-token';
