// Shows openapi.json as a page. Everything from it is set as text, never as markup.
"use strict";

const element = (name, text, ...children) => {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  made.append(...children);
  return made;
};

const resolve = (contract, schema) =>
  schema && schema.$ref ? contract.components.schemas[schema.$ref.split("/").pop()] : schema;

const kindOf = (schema) => {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.oneOf) return schema.oneOf.map(kindOf).filter((kind) => kind !== "null").join(" or ");
  if (schema.type === "array") return `${kindOf(schema.items)}[]`;
  const kinds = [].concat(schema.type || "any").filter((kind) => kind !== "null");
  return schema.enum ? schema.enum.join(" | ") : kinds.join(" or ");
};

const table = (heads, rows) => {
  const head = element("tr");
  for (const text of heads) head.append(element("th", text));
  const made = element("table", "", head);
  for (const row of rows) {
    const line = element("tr");
    for (const text of row) line.append(element("td", text));
    made.append(line);
  }
  return made;
};

const fields = (contract, schema) => {
  const known = resolve(contract, schema);
  const required = new Set((known && known.required) || []);
  return Object.entries((known && known.properties) || {}).map(([name, field]) => [
    name + (required.has(name) ? " *" : ""),
    kindOf(field),
    field.description || "",
  ]);
};

const operation = (contract, path, method, described) => {
  const body = element("div");
  body.className = "body";
  if (described.description) body.append(element("p", described.description));
  const parameters = (described.parameters || []).map((parameter) => [
    `${parameter.name} (${parameter.in})`,
    kindOf(parameter.schema),
    parameter.description || "",
  ]);
  if (parameters.length) body.append(element("h4", "Parameters"), table(["name", "kind", "meaning"], parameters));
  const [content] = Object.entries((described.requestBody && described.requestBody.content) || {});
  if (content) {
    body.append(element("h4", `Body: ${content[0]}`));
    const rows = fields(contract, content[1].schema);
    if (rows.length) body.append(table(["field", "kind", "meaning"], rows));
  }
  const answers = Object.entries(described.responses || {}).map(([status, answer]) => {
    const [kind] = Object.values(answer.content || {});
    return [status, answer.description || "", kind ? kindOf(kind.schema) : ""];
  });
  body.append(element("h4", "Answers"), table(["code", "meaning", "kind"], answers));
  const method_ = element("span", method.toUpperCase());
  method_.className = "method";
  const head = element("summary", "", method_, element("code", path), ` ${described.summary || ""}`);
  const made = element("details", "", head, body);
  made.dataset.words = `${method} ${path} ${described.summary || ""} ${described.description || ""}`.toLowerCase();
  return made;
};

const show = (contract) => {
  document.getElementById("about").textContent = `${contract.info.description} Version ${contract.info.version}.`;
  const groups = new Map();
  for (const [path, methods] of Object.entries(contract.paths)) {
    for (const [method, described] of Object.entries(methods)) {
      const tag = (described.tags || ["other"])[0];
      if (!groups.has(tag)) groups.set(tag, element("section", "", element("h2", tag)));
      groups.get(tag).append(operation(contract, path, method, described));
    }
  }
  document.getElementById("operations").append(...groups.values());
};

document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.toLowerCase();
  for (const made of document.querySelectorAll("details")) made.hidden = !made.dataset.words.includes(wanted);
});

fetch("/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch((error) => {
    document.getElementById("about").textContent = `The contract cannot be read: ${error}`;
  });
