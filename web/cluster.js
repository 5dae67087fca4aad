/** Requests go to the server whose events this page receives; the token is sent in a header and nowhere else. */

const TOKEN_KEY = 'leasehold-token';
const UNAVAILABLE = 503;
/** Longest time for a change, and the pause before it is repeated, in milliseconds. */
const CHANGE_MS_MAX = 60_000;
const RETRY_MS = 500;

export class ProblemError extends Error {
  /** @param {number} status @param {string} detail @param {string} code from docs/errors.md; empty without one */
  constructor(status, detail, code) {
    super(detail);
    this.status = status;
    this.code = code;
  }

  /** Whether the server refuses the user, and not the request. */
  get isRefusal() {
    return this.status === 401 || this.status === 403;
  }
}

export class Cluster {
  /** The server whose events this page receives. */
  base = location.origin;

  get token() {
    return sessionStorage.getItem(TOKEN_KEY) ?? '';
  }

  set token(token) {
    if (token === '') sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  }

  headers(more = {}) {
    return this.token === '' ? more : { ...more, authorization: `Bearer ${this.token}` };
  }

  /** @throws {ProblemError} the server's error */
  async request(path, { method = 'GET', headers = {}, body = null, signal = null } = {}) {
    const response = await fetch(`${this.base}${path}`, {
      method,
      headers: this.headers(headers),
      body,
      signal,
    });
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  async json(path, options) {
    return (await this.request(path, options)).json();
  }

  post(path, value, headers = {}) {
    return this.json(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(value),
    });
  }

  /** As `post`, repeated while the cluster asks for that: it elects a primary, or makes another change. */
  async change(path, value, headers = {}) {
    const endMs = performance.now() + CHANGE_MS_MAX;
    for (;;) {
      try {
        return await this.post(path, value, headers);
      } catch (error) {
        if (error.status !== UNAVAILABLE || performance.now() > endMs) throw error;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  query(query) {
    return this.post('/v1/catalog/queries', { query });
  }

  /** @param {number} catalog that of the volume; 0: the root catalog */
  command(command, catalog = 0) {
    const session = Math.floor(Math.random() * 2 ** 52) + 1;
    const headers = { 'leasehold-catalog': String(catalog) };
    return this.change('/v1/catalog/commands', { session, number: 1, command }, headers);
  }

  /** @param {{ volume: string, names: readonly string[] }} place */
  filesPath({ volume, names }, directory = false) {
    return `/v1/files/${[volume, ...names].map(encodeURIComponent).join('/')}${directory ? '/' : ''}`;
  }
}

export async function problemOf(response) {
  const text = await response.text();
  try {
    const { detail = text, code = '' } = JSON.parse(text);
    return new ProblemError(response.status, detail, code);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return new ProblemError(response.status, text || response.statusText, '');
  }
}
