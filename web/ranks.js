// Describes the ranks' state in words, from /api/status.

import { isNumber } from "./dom.js";

// Color of a rank's dot and of its border in the layout.
export const TONES = { up: "good", lost: "bad", rejoining: "warn" };

const clock = (unix) => new Date(unix * 1000).toLocaleTimeString();

// "lost since 12:03:09", "rejoining since ..."; "": up. unknown: the state is not available now.
export function stateOf(rank) {
  if (rank.state === "unknown") return "not known";
  if (rank.state !== "lost" && rank.state !== "rejoining") return "";
  return isNumber(rank.since_s) ? `${rank.state} since ${clock(rank.since_s)}` : rank.state;
}

export function missing(status) {
  return (Array.isArray(status?.ranks) ? status.ranks : [])
    .filter(({ state }) => state === "lost" || state === "rejoining");
}

// "Rank 1 (host b) has been lost since 12:03:09: its process was killed by signal 9 (Killed)."
export function lossOf(rank) {
  const host = rank.host ? ` (${rank.host})` : "";
  const verb = isNumber(rank.since_s) ? "has been" : "is";
  return `Rank ${rank.rank}${host} ${verb} ${stateOf(rank)}${rank.why ? `: ${rank.why}` : ""}.`;
}

// For the page's header: "rank 1 lost", "ranks 1, 2 rejoining"; "": all are up.
export function shortLoss(status) {
  const list = missing(status);
  if (list.length === 0) return "";
  const words = list.some(({ state }) => state === "lost") ? "lost" : "rejoining";
  return `rank${list.length > 1 ? "s" : ""} ${list.map(({ rank }) => rank).join(", ")} ${words}`;
}

// Ranks that the cluster continues without.
export function departures(status) {
  return (Array.isArray(status?.departed) ? status.departed : []).map((rank) => {
    const host = rank.host ? ` (${rank.host})` : "";
    const since = isNumber(rank.since_s) ? ` at ${clock(rank.since_s)}` : "";
    const epoch = isNumber(rank.epoch) ? `, then number ${rank.rank} of epoch ${rank.epoch}` : "";
    return `A rank${host}${epoch}, was lost${since} and did not come back` +
      `${rank.why ? `: ${rank.why}` : ""}. The others continue without it.`;
  });
}
