// Drives MQTT.js for tests/interop: one command per line of JSON on stdin, one answer or message per line on stdout.
import mqtt from "mqtt";
import readline from "node:readline";

const say = (item) => process.stdout.write(JSON.stringify(item) + "\n");
let client;

const commands = {
  async connect({ port, clientId, version, persistent, will, websocket, reconnects }) {
    client = mqtt.connect({
      protocol: websocket ? "ws" : "mqtt",
      path: "/mqtt",
      host: "127.0.0.1",
      port,
      clientId,
      protocolVersion: version,
      clean: !persistent,
      reconnectPeriod: reconnects ? 200 : 0,
      properties: version === 5 && persistent ? { sessionExpiryInterval: 3600 } : undefined,
      will: will ? { topic: will.topic, payload: Buffer.from(will.payload), qos: will.qos, retain: will.retain } : undefined,
    });
    client.on("message", (topic, payload, packet) =>
      say({ message: { topic, payload: payload.toString(), qos: packet.qos, retain: packet.retain } }),
    );
    await new Promise((resolve, reject) => client.once("connect", resolve).once("error", reject));
    client.on("connect", ({ sessionPresent }) => say({ resumed: sessionPresent }));
    client.on("error", () => {}); // of an attempt to connect again
  },
  subscribe: ({ pattern, qos }) => client.subscribeAsync(pattern, { qos }),
  publish: ({ topic, payload, qos, retain }) => client.publishAsync(topic, payload, { qos, retain }),
  stop: () => client.endAsync(),
};

for await (const line of readline.createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    await commands[command.do](command);
    say({ done: command.do });
  } catch (error) {
    say({ error: String(error) });
  }
}
process.exit(0);
