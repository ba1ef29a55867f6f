// Sends requests to the dashboard's API. A change carries the token of the session, which no other site can read.

export const session = { user: null, mayChange: false, token: "", version: "", uptime: 0, store: false, at: 0 };

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function answered(response) {
  const text = await response.text();
  let body = {};
  try { body = JSON.parse(text); } catch { body = { error: text.trim() }; }
  if (!response.ok) throw new Refused(response.status, body.error || `The broker answers with status ${response.status}.`);
  return body;
}

export async function get(path, query = {}) {
  const asked = new URLSearchParams(query).toString();
  try {
    return await answered(await fetch(`api/${path}${asked ? `?${asked}` : ""}`, { credentials: "same-origin", cache: "no-store" }));
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused(0, "The broker does not answer.");
  }
}

export async function openSession() {
  Object.assign(session, await get("session"), { at: Date.now() });
}

export async function change(path, body, again = true) {
  let response;
  try {
    response = await fetch(`api/${path}`, {
      method: "POST", credentials: "same-origin", cache: "no-store",
      headers: { "content-type": "application/json", "x-mosq-token": session.token }, body: JSON.stringify(body),
    });
  } catch {
    throw new Refused(0, "The broker does not answer.");
  }
  try {
    return await answered(response);
  } catch (error) {
    if (error.status === 403 && error.message === "token" && again) {
      await openSession();        // the broker has reloaded its configuration since
      return change(path, body, false);
    }
    throw error;
  }
}
