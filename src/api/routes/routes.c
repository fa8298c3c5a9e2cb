/* SPDX-License-Identifier: Apache-2.0 */
/* routes.c: the routes of the native API. tests/e2e check that docs/openapi.yaml has these and those of
 * letta/letta_routes.c, and no others. */
#include "api/api.h"

#define S ROUTE_SANDBOX
#define R (ROUTE_SANDBOX | ROUTE_RUNNING)
#define P (ROUTE_SANDBOX | ROUTE_PROCESS)
#define W ROUTE_WRITE
#define OWN (ROUTE_WRITE | ROUTE_OWN_CODE)
#define JSON ROUTE_JSON
#define MAYBE (ROUTE_JSON | ROUTE_EMPTY_OK)
#define BOX "/v1/sandboxes/{id}"
#define PROC BOX "/processes/{n}"

static const struct route routes[] = {
    {"GET", "/healthz", "", ROUTE_OPEN, route_health},
    {"GET", "/readyz", "", ROUTE_OPEN, route_ready},
    {"GET", "/metrics", "", 0, route_metrics},
    {"GET", "/v1/version", "", ROUTE_OPEN, route_version},
    {"GET", "/v1/openapi.json", "", ROUTE_OPEN, route_openapi},

    {"POST", "/v1/sandboxes", "", W | ROUTE_JSON | ROUTE_EMPTY_OK, route_sandbox_create},
    {"GET", "/v1/sandboxes", "state name limit cursor metadata.", 0, route_sandbox_list},
    {"GET", BOX, "", S, route_sandbox_get},
    {"PATCH", BOX, "", S | W | ROUTE_JSON, route_sandbox_update},
    {"DELETE", BOX, "", S | W, route_sandbox_delete},
    {"POST", BOX "/pause", "", S | W, route_sandbox_pause},
    {"POST", BOX "/resume", "", S | W, route_sandbox_resume},
    {"POST", BOX "/stop", "", S | W, route_sandbox_stop},
    {"POST", BOX "/snapshot", "", S | W | MAYBE, route_sandbox_snapshot},
    {"POST", BOX "/fork", "", S | W | MAYBE, route_sandbox_fork},
    {"POST", BOX "/commit", "", S | W | JSON, route_sandbox_commit},
    {"GET", BOX "/metrics", "", S, route_sandbox_metrics},
    {"GET", BOX "/logs", "", R, route_sandbox_logs},
    {"POST", "/v1/prune", "", W | ROUTE_ADMIN, route_prune},

    {"POST", BOX "/run", "", R | OWN | ROUTE_JSON, route_run},
    {"POST", BOX "/processes", "", R | OWN | ROUTE_JSON, route_process_start},
    {"GET", BOX "/processes", "", S | ROUTE_INSIDE, route_process_list},
    {"GET", PROC, "", P, route_process_get},
    {"DELETE", PROC, "", P | W, route_process_kill},
    {"GET", PROC "/output", "stdout stderr stream follow", P, route_process_output},
    {"GET", PROC "/attach", "stdout stderr", P | OWN, route_process_attach},
    {"POST", PROC "/stdin", "eof", P | OWN | ROUTE_BODY, route_process_stdin},
    {"POST", PROC "/signal", "", P | W | ROUTE_JSON, route_process_signal},
    {"POST", PROC "/resize", "", P | W | ROUTE_JSON, route_process_resize},
    {"GET", PROC "/wait", "timeout", P, route_process_wait},

    {"POST", BOX "/shells", "", R | OWN | ROUTE_JSON | ROUTE_EMPTY_OK, route_shell_open},
    {"POST", BOX "/shells/{n}/run", "", R | OWN | ROUTE_JSON, route_shell_run},
    {"DELETE", BOX "/shells/{n}", "", R | W, route_shell_close},

    {"GET", BOX "/services", "", R, route_service_list},
    {"POST", BOX "/services/{service}/start", "", R | W, route_service_start},
    {"POST", BOX "/services/{service}/stop", "", R | W, route_service_stop},
    {"POST", BOX "/services/{service}/restart", "", R | W, route_service_restart},
    {"GET", BOX "/services/{service}/log", "offset follow", R, route_service_log},

    {"GET", BOX "/files", "path path_encoding", R, route_file_get},
    {"HEAD", BOX "/files", "path path_encoding", R, route_file_get},
    {"PUT", BOX "/files", "path path_encoding mode append offset parents exclusive", R | OWN | ROUTE_BODY,
     route_file_put},
    {"DELETE", BOX "/files", "path path_encoding recursive", R | W, route_file_delete},
    {"GET", BOX "/files/stat", "path path_encoding follow", R, route_file_stat},
    {"GET", BOX "/files/list", "path path_encoding depth limit", R, route_file_list},
    {"POST", BOX "/files/mkdir", "", R | W | ROUTE_JSON, route_file_mkdir},
    {"POST", BOX "/files/move", "", R | OWN | ROUTE_JSON, route_file_move},
    {"GET", BOX "/files/watch", "path path_encoding recursive", R, route_file_watch},
    {"GET", BOX "/files/tar", "path path_encoding", R, route_tar_get},
    {"PUT", BOX "/files/tar", "path path_encoding max_bytes max_members", R | OWN | ROUTE_BODY, route_tar_put},

    {"GET", BOX "/ports", "", R, route_port_list},
    {"POST", BOX "/ports/{port}/token", "", R | W | ROUTE_JSON | ROUTE_EMPTY_OK, route_port_token},
    {"*", BOX "/proxy/{port}/...", "*", ROUTE_BODY | ROUTE_OPEN, route_proxy},

    {"POST", "/v1/sandbox-config/environment-variable/{env_var_id}/reveal", "", W | ROUTE_ADMIN, route_variable_reveal},

    {"POST", "/v1/tools/{tool}/run", "", W | MAYBE | ROUTE_SECRET, route_tool_run},

    {"PUT", "/v1/agents/{agent_id}/secrets", "", W | JSON | ROUTE_SECRET, route_agent_secret_put},
    {"DELETE", "/v1/agents/{agent_id}/secrets/{key}", "", W, route_agent_secret_delete},
    {"POST", "/v1/agents/{agent_id}/secrets/{key}/reveal", "", W | ROUTE_ADMIN, route_agent_reveal},

    {"POST", "/v1/run", "", W | JSON | ROUTE_SECRET, route_run_once},
    {"DELETE", "/v1/runs/{run}", "", W, route_run_cancel},
    {"GET", "/v1/runs/{run}/files", "", 0, route_run_files},
    {"GET", "/v1/approvals", "", 0, route_approval_list},
    {"POST", "/v1/approvals/{run}/approve", "", W | MAYBE, route_approval_approve},
    {"POST", "/v1/approvals/{run}/deny", "", W | MAYBE, route_approval_deny},
    {"GET", "/v1/pools", "", 0, route_pool_list},
    {"POST", "/v1/pools/prewarm", "", W | JSON, route_pool_prewarm},
    {"GET", "/v1/providers", "", 0, route_provider_list},
    {"POST", "/v1/providers/{provider}/check", "", W | ROUTE_SOCKET, route_provider_check},

    {"POST", "/v1/runs", "", OWN | ROUTE_JSON, route_runs_create},
    {"GET", "/v1/runs", "sandbox cause since until limit cursor", 0, route_runs_list},
    {"GET", "/v1/runs/attach", "", OWN, route_runs_attach},
    {"GET", "/v1/runs/{run}", "", 0, route_runs_get},
    {"GET", "/v1/certificates", "cause since until limit cursor", 0, route_certificates_list},
    {"GET", "/v1/certificates/{sandbox}", "", 0, route_certificates_get},

    {"GET", "/v1/policies", "", 0, route_policy_list},
    {"POST", "/v1/policies/check", "", ROUTE_JSON, route_policy_check},
    {"GET", "/v1/policies/{policy}", "", 0, route_policy_get},
    {"PUT", "/v1/policies/{policy}", "", W | ROUTE_ADMIN | ROUTE_JSON, route_policy_put},
    {"DELETE", "/v1/policies/{policy}", "", W | ROUTE_ADMIN, route_policy_delete},

    {"GET", "/v1/templates", "", 0, route_template_list},
    {"POST", "/v1/templates/load", "name platform replace shared", W | ROUTE_BODY, route_template_load},
    {"POST", "/v1/templates/pull", "", W | ROUTE_JSON, route_template_pull},
    {"POST", "/v1/templates/prune", "", W | ROUTE_ADMIN, route_template_prune},
    {"GET", "/v1/templates/du", "", 0, route_template_du},
    {"POST", "/v1/templates/builds", "", W | ROUTE_JSON | ROUTE_SECRET, route_build_create},
    {"GET", "/v1/templates/builds", "", 0, route_build_list},
    {"GET", "/v1/templates/builds/{build}", "", 0, route_build_get},
    {"DELETE", "/v1/templates/builds/{build}", "", W, route_build_delete},
    {"PUT", "/v1/templates/builds/{build}/context", "", W | ROUTE_BODY, route_build_context},
    {"GET", "/v1/templates/builds/{build}/lock", "", 0, route_build_lock},
    {"GET", "/v1/templates/builds/{build}/log", "follow", 0, route_build_log},
    {"GET", "/v1/templates/{template}", "", 0, route_template_get},
    {"DELETE", "/v1/templates/{template}", "", W | ROUTE_ADMIN, route_template_delete},
    {"GET", "/v1/templates/{template}/export", "format", W, route_template_export},
    {"POST", "/v1/templates/{template}/tag", "", W | ROUTE_ADMIN | ROUTE_JSON, route_template_tag},
    {"POST", "/v1/templates/{template}/rebuild", "", W | ROUTE_ADMIN, route_template_rebuild},
    {"GET", "/v1/snapshots", "", 0, route_snapshot_list},
    {"GET", "/v1/snapshots/{snapshot}", "", 0, route_snapshot_get},
    {"DELETE", "/v1/snapshots/{snapshot}", "", W, route_snapshot_delete},
    {"POST", "/v1/snapshots/{snapshot}/restore", "", W | MAYBE, route_snapshot_restore},
    {"GET", "/v1/volumes", "", 0, route_volume_list},
    {"POST", "/v1/volumes", "", W | JSON, route_volume_create},
    {"GET", "/v1/volumes/{volume}", "", 0, route_volume_get},
    {"DELETE", "/v1/volumes/{volume}", "", W, route_volume_delete},
    {"GET", "/v1/registries", "", ROUTE_ADMIN, route_registry_list},
    {"GET", "/v1/registries/{host}", "", ROUTE_ADMIN, route_registry_get},
    {"PUT", "/v1/registries/{host}", "", W | ROUTE_ADMIN | ROUTE_JSON | ROUTE_SECRET, route_registry_put},
    {"DELETE", "/v1/registries/{host}", "", W | ROUTE_ADMIN, route_registry_delete},

    {"POST", "/v1/keys", "", W | ROUTE_ADMIN | ROUTE_JSON | ROUTE_EMPTY_OK, route_key_create},
    {"GET", "/v1/keys", "", ROUTE_ADMIN, route_key_list},
    {"DELETE", "/v1/keys/{key}", "", W | ROUTE_ADMIN, route_key_revoke},
    {"GET", "/v1/keys/{key}/tools", "", ROUTE_ADMIN, route_key_tools_get},
    {"PUT", "/v1/keys/{key}/tools", "", W | ROUTE_ADMIN | ROUTE_JSON, route_key_tools_put},
    {"POST", "/v1/secrets/rotate", "", W | ROUTE_SOCKET, route_secret_rotate},
    {"GET", "/v1/secrets", "limit cursor", 0, route_secret_list},
    {"GET", "/v1/secrets/{name}", "", 0, route_secret_get},
    {"PUT", "/v1/secrets/{name}", "", W | ROUTE_ADMIN | ROUTE_JSON | ROUTE_SECRET, route_secret_put},
    {"DELETE", "/v1/secrets/{name}", "", W | ROUTE_ADMIN, route_secret_delete},
    {"POST", "/v1/orgs", "", W | ROUTE_SOCKET | ROUTE_JSON, route_org_create},
    {"GET", "/v1/orgs", "", ROUTE_SOCKET, route_org_list},
    {"DELETE", "/v1/orgs/{org}", "", W | ROUTE_SOCKET, route_org_delete},
    {"GET", "/v1/orgs/{org}/tools", "", ROUTE_ADMIN, route_org_tools_get},
    {"PUT", "/v1/orgs/{org}/tools", "", W | ROUTE_ADMIN | ROUTE_JSON, route_org_tools_put},
    {"GET", "/v1/config", "", ROUTE_SOCKET, route_config_get},
    {"POST", "/v1/config/reload", "", W | ROUTE_SOCKET, route_config_reload},
    {"GET", "/v1/events", "since", 0, route_events},
    {"GET", "/v1/audit", "after limit", ROUTE_ADMIN, route_audit},
};

const struct route_table api_table = {.routes = routes, .n_routes = ARRAY_SIZE(routes), .adapter = &api_native};
