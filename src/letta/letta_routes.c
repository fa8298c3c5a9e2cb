/* SPDX-License-Identifier: Apache-2.0 */
/* letta_routes.c: the routes of Letta's interface, and its health. tests/e2e check that docs/openapi.yaml has the same
 * ones. */
#include "letta/letta_routes.h"
#include "letta/letta.h"

#define W ROUTE_WRITE
#define JSON ROUTE_JSON
#define MAYBE (ROUTE_JSON | ROUTE_EMPTY_OK)

static void route_letta_health(struct request *rq)
{
    AUTO_BUF struct buf out = BUF_INIT(4096);
    struct json json = JSON_INIT(&out);

    json_object(&json);
    json_key_string(&json, "version", brig_version());
    json_key_string(&json, "status", "ok");
    json_end(&json);
    request_json(rq, 200, &json);
}

static const struct route routes[] = {
    {"GET", "/v1/health/", "*", ROUTE_OPEN, route_letta_health},
    {"GET", "/v1/sandbox-config/", "limit after sandbox_type *", 0, route_config_list},
    {"POST", "/v1/sandbox-config/", "*", W | JSON, route_config_create},
    {"POST", "/v1/sandbox-config/e2b/default", "*", W, route_config_e2b_default},
    {"POST", "/v1/sandbox-config/local/default", "*", W, route_config_local_default},
    {"POST", "/v1/sandbox-config/local", "*", W | JSON, route_config_local},
    {"POST", "/v1/sandbox-config/local/recreate-venv", "*", W, route_config_recreate},
    {"PATCH", "/v1/sandbox-config/environment-variable/{env_var_id}", "*", W | JSON | ROUTE_SECRET,
     route_variable_update},
    {"DELETE", "/v1/sandbox-config/environment-variable/{env_var_id}", "*", W, route_variable_delete},
    {"GET", "/v1/sandbox-config/{sandbox_config_id}", "*", 0, route_config_one},
    {"PATCH", "/v1/sandbox-config/{sandbox_config_id}", "*", W | JSON, route_config_update},
    {"DELETE", "/v1/sandbox-config/{sandbox_config_id}", "*", W, route_config_delete},
    {"GET", "/v1/sandbox-config/{sandbox_config_id}/environment-variable", "limit after key *", 0, route_variable_list},
    {"POST", "/v1/sandbox-config/{sandbox_config_id}/environment-variable", "*", W | JSON | ROUTE_SECRET,
     route_variable_create},

    {"GET", "/v1/tools/",
     "before after limit order order_by name names tool_ids search tool_types exclude_tool_types "
     "return_only_letta_tools *",
     0, route_tool_list},
    {"POST", "/v1/tools/", "*", W | JSON, route_tool_upsert},
    {"PUT", "/v1/tools/", "*", W | JSON, route_tool_upsert},
    {"GET", "/v1/tools/count", "name names tool_ids search tool_types exclude_tool_types return_only_letta_tools *", 0,
     route_tool_count},
    {"POST", "/v1/tools/search", "*", JSON, route_tool_search},
    {"POST", "/v1/tools/run", "*", W | JSON | ROUTE_SECRET, route_tool_source},
    {"POST", "/v1/tools/generate-schema", "*", W | JSON, route_tool_schema},
    {"POST", "/v1/tools/add-base-tools", "*", W, route_tool_base},
    {"GET", "/v1/tools/{tool_id}", "*", 0, route_tool_get},
    {"PATCH", "/v1/tools/{tool_id}", "*", W | JSON, route_tool_update},
    {"DELETE", "/v1/tools/{tool_id}", "*", W, route_tool_delete},

    {"GET", "/v1/agents/", "before after limit order order_by ascending name tags query_text project_id *", 0,
     route_agent_list},
    {"POST", "/v1/agents/", "*", W | JSON | ROUTE_SECRET, route_agent_create},
    {"GET", "/v1/agents/count", "*", 0, route_agent_count},
    {"GET", "/v1/agents/{agent_id}", "*", 0, route_agent_get},
    {"PATCH", "/v1/agents/{agent_id}", "*", W | JSON | ROUTE_SECRET, route_agent_update},
    {"DELETE", "/v1/agents/{agent_id}", "*", W, route_agent_delete},
    {"GET", "/v1/agents/{agent_id}/tools", "before after limit order *", 0, route_agent_tools},
    {"PATCH", "/v1/agents/{agent_id}/tools/attach/{tool_id}", "*", W, route_agent_attach},
    {"PATCH", "/v1/agents/{agent_id}/tools/detach/{tool_id}", "*", W, route_agent_detach},
    {"PATCH", "/v1/agents/{agent_id}/tools/approval/{tool_name}", "requires_approval *", W | MAYBE,
     route_agent_approval},
    {"POST", "/v1/agents/{agent_id}/tools/{tool_name}/run", "*", W | MAYBE | ROUTE_SECRET, route_agent_tool_run},
};

const struct route_table letta_table = {.routes = routes, .n_routes = ARRAY_SIZE(routes), .adapter = &letta_adapter};
