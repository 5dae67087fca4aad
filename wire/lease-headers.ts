/** Request header: the holder's secret, a random integer from 1 to 2^53 − 1. */
export const HEADER_SESSION = 'leasehold-session';
/** Response header: the fencing token of the holder that the answer is about; 0 where there is none. */
export const HEADER_TOKEN = 'leasehold-token';
