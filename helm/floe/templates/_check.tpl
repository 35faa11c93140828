{{/* What differs between the values and what can work: said when rendering, not when an agent starts. */}}
{{- define "floe.check" -}}
{{- include "floe.checkStop" . -}}
{{- include "floe.checkConfig" . -}}
{{- include "floe.checkPod" . -}}
{{- include "floe.checkNames" . -}}
{{- include "floe.checkGroups" . -}}
{{- include "floe.checkListeners" . -}}
{{- include "floe.checkProcesses" . -}}
{{- include "floe.checkDoors" . -}}
{{- include "floe.checkParts" . -}}
{{- include "floe.checkSpark" . -}}
{{- end -}}

{{- define "floe.checkStop" -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int (add .Values.preStopSeconds 10)) -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be at least preStopSeconds (%d) + 10" (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds)) -}}
{{- end -}}
{{- $stop := mul 1000 (include "floe.stopSeconds" . | int) -}}
{{- if and (gt (int $stop) 600000) (not (hasKey (default (dict) .Values.config.shutdown) "timeout_ms")) -}}
{{- fail (printf "terminationGracePeriodSeconds (%d) must be at most preStopSeconds (%d) + 605, for an agent stops within 600 s; or set config.shutdown.timeout_ms" (int .Values.terminationGracePeriodSeconds) (int .Values.preStopSeconds)) -}}
{{- end -}}
{{- end -}}

{{/* Settings that values of their own say, and those that contradict each other. */}}
{{- define "floe.checkConfig" -}}
{{- if hasKey .Values.config "listeners" -}}{{- fail "config.listeners: set kafka and listeners instead, which Services and probes follow" -}}{{- end -}}
{{- if hasKey .Values.config "agent" -}}{{- fail "config.agent: set zone, groups or processes instead; names are the pods', and node ids are the cluster's to give" -}}{{- end -}}
{{- range $section := list "http" "peers" -}}
{{- if hasKey (default (dict) (get $.Values.config $section)) "port" -}}{{- fail (printf "config.%s.port: set %s.port instead, which Services and probes follow" $section $section) -}}{{- end -}}
{{- end -}}
{{- $store := default (dict) .Values.config.store -}}
{{- $endpoint := ternary $store.endpoint .Values.objectStore.endpoint (hasKey $store "endpoint") -}}
{{- $allowed := ternary $store.allow_http .Values.objectStore.allowHttp (hasKey $store "allow_http") -}}
{{- if and (hasPrefix "http://" (lower $endpoint)) (not $allowed) -}}
{{- fail (printf "objectStore.endpoint %s is without TLS: set objectStore.allowHttp=true to accept that" $endpoint) -}}
{{- end -}}
{{- $tls := .Values.etcd.tls -}}
{{- if and $tls.enabled (not (include "floe.etcdSecret" .)) -}}
{{- fail "etcd.tls.enabled needs etcd.tls.secretName, a Secret with ca.crt, or etcd.tls.certManager.enabled" -}}
{{- end -}}
{{- if and $tls.certManager.enabled (not $tls.enabled) -}}{{- fail "etcd.tls.certManager.enabled needs etcd.tls.enabled" -}}{{- end -}}
{{- if and $tls.certManager.enabled (not $tls.certManager.issuerRef.name) -}}{{- fail "etcd.tls.certManager.issuerRef.name is empty: name the issuer of etcd's clients" -}}{{- end -}}
{{- if $tls.certManager.enabled -}}{{- include "floe.checkIssued" (list "etcd" $tls.certManager) -}}{{- end -}}
{{- end -}}

{{/* How long a certificate holds, (list <of whom> <its certManager>): longer than its renewal comes before its end. */}}
{{- define "floe.checkIssued" -}}
{{- with index . 1 -}}
{{- if le (include "floe.seconds" .duration | int) (include "floe.seconds" .renewBefore | int) -}}
{{- fail (printf "%s: tls.certManager.duration (%s) must be more than tls.certManager.renewBefore (%s): lower renewBefore, or raise duration" (index $ 0) .duration .renewBefore) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Whole seconds of a time such as 1h30m. */}}
{{- define "floe.seconds" -}}
{{- $sum := 0 -}}
{{- $said := regexReplaceAll "[0-9]+ms" . "" -}}
{{- range $unit, $seconds := dict "d" 86400 "h" 3600 "m" 60 "s" 1 -}}
{{- with regexFind (printf "[0-9]+%s" $unit) $said -}}{{- $sum = add $sum (mul (trimSuffix $unit . | int64) $seconds) -}}{{- end -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* Labels, variables, volumes and containers of the pod: none twice, none that is the chart's. */}}
{{- define "floe.checkPod" -}}
{{- $own := merge (dict "floe/group" "" "floe/service" "") (include "floe.ownLabels" . | fromYaml) -}}
{{- range $where := list "commonLabels" "podLabels" -}}
{{- range $key := keys (get $.Values $where) -}}
{{- if hasKey $own $key -}}{{- fail (printf "%s: %s is the chart's own, by which pods are found; choose another name" $where $key) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $key := keys .Values.podAnnotations -}}
{{- if eq $key "checksum/config" -}}{{- fail "podAnnotations: checksum/config is the chart's own; choose another name" -}}{{- end -}}
{{- end -}}
{{- $taken := include "floe.ownEnv" . | fromJson -}}
{{- range .Values.extraEnv -}}
{{- if regexMatch "^FLOE_(LISTENERS(__.*)?|(HTTP|PEERS)__PORT)$" .name -}}{{- fail (printf "extraEnv: instead of %s set kafka, listeners, http.port or peers.port, which Services and probes follow" .name) -}}{{- end -}}
{{- if hasKey $taken .name -}}{{- fail (printf "extraEnv: %s is there already: %s" .name (default "the chart sets it, or the list has it twice" (get $taken .name))) -}}{{- end -}}
{{- $_ := set $taken .name "" -}}
{{- end -}}
{{- $volumes := dict "config" "" "scratch" "" "etcd-tls" "" "etcd-auth" "" "store-keys" "" "users" "" -}}
{{- $paths := dict "/etc/floe/floe.yaml" "" "/var/lib/floe" "" "/etc/floe/etcd-tls" "" "/etc/floe/etcd-auth" "" "/etc/floe/store-keys" "" "/etc/floe/tls" "" "/etc/floe/users" "" "/etc/floe" "" "/opt/floe" "" -}}
{{- range (include "floe.listeners" . | fromJson).listeners -}}
{{- if and .encrypted $.Values.etcd.tls.enabled (eq .id "etcd") -}}
{{- fail (printf "listeners: %s speaks %s, and the volume etcd-tls of its certificate is the one of etcd.tls.enabled: rename the listener" .name .protocol) -}}
{{- end -}}
{{- $_ := set $volumes (printf "%s-tls" .id) "" -}}
{{- if .encrypted -}}{{- $_ := set $paths (printf "/etc/floe/tls/%s" .id) "" -}}{{- end -}}
{{- end -}}
{{- if .Values.http.tls.secretName -}}{{- $_ := set $volumes "http-tls" "" -}}{{- $_ := set $paths "/etc/floe/tls/http" "" -}}{{- end -}}
{{- range .Values.extraVolumes -}}
{{- if hasKey $volumes .name -}}{{- fail (printf "extraVolumes: the volume %s is the chart's own or there twice; choose another name" .name) -}}{{- end -}}
{{- $_ := set $volumes .name "" -}}
{{- end -}}
{{- range .Values.extraVolumeMounts -}}
{{- if not (hasKey $volumes .name) -}}{{- fail (printf "extraVolumeMounts: %s is mounted and extraVolumes has no such volume" .name) -}}{{- end -}}
{{- $path := trimSuffix "/" .mountPath -}}
{{- if hasKey $paths $path -}}{{- fail (printf "extraVolumeMounts: something is mounted at %s already, or the agent's own files are there; choose another path" .mountPath) -}}{{- end -}}
{{- $_ := set $paths $path "" -}}
{{- end -}}
{{- $ports := dict "kafka" "" "peers" "" "http" "" (toString .Values.kafka.port) "" (toString .Values.peers.port) "" (toString .Values.http.port) "" -}}
{{- range .Values.listeners -}}{{- $ports = merge $ports (dict (include "floe.portName" .name) "" (toString .port) "") -}}{{- end -}}
{{- if gt (int .Values.processes) 1 -}}
{{- $ports = merge $ports (dict "supervisor" "" (toString .Values.supervisorPort) "") (include "floe.otherNames" . | fromJson) -}}
{{- range $first := concat .Values.listeners (list .Values.kafka .Values.peers .Values.http) -}}
{{- range $port := include "floe.otherPorts" (list $ $first.port) | fromJsonArray -}}{{- $_ := set $ports (toString $port) "" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $containers := dict "agent" "" "has-services" "" -}}
{{- range concat .Values.initContainers .Values.sidecars -}}
{{- if hasKey $containers .name -}}{{- fail (printf "initContainers and sidecars: the container %s is the chart's own or there twice; choose another name" .name) -}}{{- end -}}
{{- $_ := set $containers .name "" -}}
{{- $container := .name -}}
{{- range .ports -}}
{{- range $port := list (default "" .name) (toString .containerPort) -}}
{{- if hasKey $ports $port -}}{{- fail (printf "initContainers and sidecars: the port %s of %s is the agent's; all containers of a pod share their ports, choose another" $port $container) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Variables that the chart gives an agent, as an object of JSON: what to set instead. */}}
{{- define "floe.ownEnv" -}}
{{- $taken := dict "POD_NAME" "" "POD_IP" "" "NODE_NAME" "" "FLOE_AGENT__NAME" "" "FLOE_AGENT__ROLES" "set groups[].roles" "FLOE_AGENT__ZONE" "set zone" "FLOE_AGENT__PROCESSES" "set processes" "FLOE_AGENT__PORT_STEP" "it is 100" "FLOE_AGENT__SUPERVISOR_PORT" "set supervisorPort" "TMPDIR" "" -}}
{{- if .Values.etcd.authSecretName -}}{{- $taken = merge $taken (dict "FLOE_LOG__USER" "it is in etcd.authSecretName" "FLOE_LOG__PASSWORD" "it is in etcd.authSecretName") -}}{{- end -}}
{{- if .Values.objectStore.credentialsSecretName -}}{{- $taken = merge $taken (dict "FLOE_STORE__ACCESS_KEY" "it is in objectStore.credentialsSecretName" "FLOE_STORE__SECRET_KEY" "it is in objectStore.credentialsSecretName") -}}{{- end -}}
{{- if .Values.sasl.adminSecretName -}}{{- $taken = merge $taken (dict "FLOE_SASL__ADMIN_PASSWORD" "it is in sasl.adminSecretName") -}}{{- end -}}
{{- $taken | toJson -}}
{{- end -}}

{{- define "floe.checkNames" -}}
{{- $full := include "floe.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $full) -}}
{{- fail (printf "the release's name %s cannot be a Service's: let it begin with a letter, and have letters, digits and '-' only" .Release.Name) -}}
{{- end -}}
{{- $names := list -}}
{{- /* Whose each Service is. */ -}}
{{- $services := dict $full "the release" (printf "%s-agents" $full) "the release" (printf "%s-http" $full) "the release" -}}
{{- if .Values.quickstart.enabled -}}{{- $_ := set (set $services (printf "%s-etcd" $full) "quickstart") (printf "%s-minio" $full) "quickstart" -}}{{- end -}}
{{- $listeners := list (default "PLAINTEXT" .Values.kafka.protocol) -}}
{{- range .Values.listeners -}}
{{- if has .name $listeners -}}{{- fail (printf "listeners: %q is there twice; give each a name of its own" .name) -}}{{- end -}}
{{- $listeners = append $listeners .name -}}
{{- if .external -}}{{- include "floe.service" (list $services (printf "%s-%s" $full (include "floe.portName" .name)) (printf "listener %s" .name)) -}}{{- end -}}
{{- end -}}
{{- $made := dict -}}
{{- include "floe.checkMade" (list . $made) -}}
{{- range (include "floe.groups" . | fromJson).groups -}}
{{- if has .group $names -}}{{- fail (printf "groups: %q is there twice" .group) -}}{{- end -}}
{{- $names = append $names .group -}}
{{- $maker := printf "%s %s" $.Values.kind .workload -}}
{{- with get $made $maker -}}{{- fail (printf "groups: the %s would be there twice, for %s and for a group of agents: rename the group" $maker .) -}}{{- end -}}
{{- /* Its pods have the label controller-revision-hash: its name, '-' and ten characters; a label has 63. */ -}}
{{- if and (eq $.Values.kind "StatefulSet") (gt (len .workload) 52) -}}
{{- fail (printf "groups: the StatefulSet %s has a name of %d characters, and 52 are possible: shorten the release's name or the group's" .workload (len .workload)) -}}
{{- end -}}
{{- $group := . -}}
{{- range $ordinal := untilStep (int .firstOrdinal) (int (add .firstOrdinal .services)) 1 -}}
{{- range $.Values.listeners -}}
{{- if .external -}}{{- include "floe.service" (list $services (printf "%s-%d-%s" $group.workload $ordinal (include "floe.portName" .name)) (printf "listener %s for an agent of group %s" .name $group.group)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Notes in the second what makes pods beside the groups of agents, (list <context> <names so far>), and refuses names that Kubernetes
would: a CronJob's jobs have eleven characters more than it, a StatefulSet's pods as above, and a Job's name is a label.
*/}}
{{- define "floe.checkMade" -}}
{{- $made := index . 1 -}}
{{- with index . 0 -}}
{{- $full := include "floe.fullname" . -}}
{{- $audit := .Values.spark.audit -}}
{{- $all := list -}}
{{- if .Values.quickstart.enabled -}}{{- $all = list (list "StatefulSet" "etcd" 52 "quickstart.enabled") (list "StatefulSet" "minio" 52 "quickstart.enabled") -}}{{- end -}}
{{- if and $audit.enabled $audit.continuous.enabled -}}{{- $all = append $all (list "Deployment" "audit" 253 "spark.audit.continuous.enabled") -}}{{- end -}}
{{- if and $audit.enabled (not $audit.continuous.enabled) -}}{{- $all = append $all (list "CronJob" "audit" 52 "spark.audit.enabled") -}}{{- end -}}
{{- if and $audit.enabled $audit.wholeSchedule -}}{{- $all = append $all (list "CronJob" "audit-whole" 52 "spark.audit.wholeSchedule") -}}{{- end -}}
{{- if .Values.spark.maintenance.enabled -}}{{- $all = append $all (list "CronJob" "maintenance" 52 "spark.maintenance.enabled") -}}{{- end -}}
{{- if .Values.objectStore.prepare -}}{{- $all = append $all (list "Job" (printf "bucket-%d" .Release.Revision) 63 "objectStore.prepare") -}}{{- end -}}
{{- range $each := $all -}}
{{- $name := printf "%s-%s" $full (index $each 1) -}}
{{- $most := index $each 2 -}}
{{- if gt (len $name) $most -}}
{{- fail (printf "%s: the %s %s has a name of %d characters, and %d are possible: set fullnameOverride to %d at most, or leave it out" (index $each 3) (index $each 0) $name (len $name) $most (sub $most (add 1 (len (index $each 1))))) -}}
{{- end -}}
{{- $_ := set $made (printf "%s %s" (index $each 0) $name) (index $each 3) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Notes a Service of a listener, (list <names so far> <its name> <for whom>): it must be possible, and no other's. */}}
{{- define "floe.service" -}}
{{- $services := index . 0 -}}
{{- $name := index . 1 -}}
{{- $whose := index . 2 -}}
{{- if hasKey $services $name -}}
{{- fail (printf "listeners: the Service %s would be there twice, for %s and for %s: rename the listener" $name (get $services $name) $whose) -}}
{{- end -}}
{{- if gt (len $name) 63 -}}
{{- fail (printf "listeners: the Service %s, for %s, has a name of %d characters, and 63 are possible: shorten the release's name, the group's or the listener's" $name $whose (len $name)) -}}
{{- end -}}
{{- $_ := set $services $name $whose -}}
{{- end -}}

{{/* Zones, and how many agents there may be. */}}
{{- define "floe.checkGroups" -}}
{{- if and .Values.zoneFromTopologyLabel (semverCompare "<1.35.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "zoneFromTopologyLabel: Kubernetes %s does not copy its nodes' labels to pods (1.35 and newer do), and agents would have no zone: give each zone a group, with groups[].zone" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- $advertised := include "floe.advertised" . -}}
{{- range (include "floe.groups" . | fromJson).groups -}}
{{- if and .zone $.Values.zoneFromTopologyLabel -}}{{- fail "zoneFromTopologyLabel: leave zone empty, for the release and for every group" -}}{{- end -}}
{{- if and (contains "{zone}" $advertised) (not .zone) (not $.Values.zoneFromTopologyLabel) -}}
{{- fail (printf "{zone} in an advertised address: group %s has none; set zone, a zone for each group, or zoneFromTopologyLabel" .group) -}}
{{- end -}}
{{- if and .maxReplicas (lt (int .maxReplicas) (int .replicas)) -}}
{{- fail (printf "maxReplicas (%d) of group %s is less than its replicas (%d)" (int .maxReplicas) .group (int .replicas)) -}}
{{- end -}}
{{- $auto := .autoscaling -}}
{{- if $auto.enabled -}}
{{- if lt (int $auto.maxReplicas) (int $auto.minReplicas) -}}
{{- fail (printf "autoscaling.maxReplicas (%d) of group %s is less than minReplicas (%d)" (int $auto.maxReplicas) .group (int $auto.minReplicas)) -}}
{{- end -}}
{{- if not (or $auto.targetCPUUtilizationPercentage $auto.metrics) -}}
{{- fail (printf "autoscaling of group %s has no metric: set targetCPUUtilizationPercentage or metrics" .group) -}}
{{- end -}}
{{- if and $auto.targetCPUUtilizationPercentage (not (dig "requests" "cpu" "" .resources)) -}}
{{- fail (printf "autoscaling.targetCPUUtilizationPercentage of group %s is a part of resources.requests.cpu: set that" .group) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Everything that is advertised, as one text. */}}
{{- define "floe.advertised" -}}
{{- range (include "floe.listeners" . | fromJson).listeners -}}{{- printf " %s %v" .advertisedHost .advertisedPort -}}{{- end -}}
{{- end -}}

{{/* TLSRoutes of a listener: each agent has a name of its own, by which a gateway finds it. */}}
{{- define "floe.checkRoutes" -}}
{{- if eq (default "" (default (dict) .external).type) "TLSRoute" -}}
{{- if not (and .external.parentRefs .external.bootstrapHost) -}}{{- fail (printf "listeners: %s has TLSRoutes, which need external.parentRefs, the gateways, and external.bootstrapHost, where clients begin" .name) -}}{{- end -}}
{{- if not (hasSuffix "SSL" (default "PLAINTEXT" .protocol)) -}}{{- fail (printf "listeners: %s has TLSRoutes, which go by the name in TLS: set its protocol to SSL or SASL_SSL" .name) -}}{{- end -}}
{{- $said := default "" .advertisedHost -}}
{{- $host := $said | replace "{pod}" "" | replace "{ordinal}" "" -}}
{{- if or (contains "{" $host) (eq $host $said) -}}{{- fail (printf "listeners: %s has TLSRoutes, one for each agent: set advertisedHost to a name with {pod} or {ordinal}, and no other placeholder" .name) -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "floe.checkListeners" -}}
{{- if and (contains "{ordinal" (include "floe.advertised" .)) (ne .Values.kind "StatefulSet") -}}
{{- fail "{ordinal} in an advertised address needs kind: StatefulSet; pods of a Deployment have no numbers" -}}
{{- end -}}
{{- $taken := dict -}}
{{- range $group := (include "floe.groups" . | fromJson).groups -}}
{{- range $ordinal := untilStep (int .firstOrdinal) (int (add .firstOrdinal .services)) 1 -}}
{{- range $listener := $.Values.listeners -}}
{{- if and .external (eq .external.type "NodePort") .external.firstNodePort -}}
{{- range $first := prepend (include "floe.otherPorts" (list $ .external.firstNodePort) | fromJsonArray) .external.firstNodePort -}}
{{- $port := add $first $ordinal | toString -}}
{{- if hasKey $taken $port -}}{{- fail (printf "listeners: node port %s would be taken twice; give groups a firstOrdinal of their own" $port) -}}{{- end -}}
{{- if gt (int $port) 65535 -}}{{- fail (printf "listeners: %s would have the node port %s: choose a lower firstNodePort, or lower firstOrdinal of groups" $listener.name $port) -}}{{- end -}}
{{- $_ := set $taken $port true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ports := list (int .Values.kafka.port) (int .Values.http.port) (int .Values.peers.port) -}}
{{- range .Values.listeners -}}
{{- $ports = append $ports (int .port) -}}
{{- include "floe.checkRoutes" . -}}
{{- if and .external (ne $.Values.kind "StatefulSet") -}}{{- fail (printf "listeners: %s has external, which needs kind: StatefulSet" .name) -}}{{- end -}}
{{- if and .external (eq (default (dict) .external).type "NodePort") (not .advertisedPort) -}}
{{- fail (printf "listeners: %s is a NodePort without advertisedPort, so that clients would be sent to %d: set it to the port that is open outside, such as \"{ordinal+%d}\" with firstNodePort: %d" .name (int .port) (int (default 31000 .external.firstNodePort)) (int (default 31000 .external.firstNodePort))) -}}
{{- end -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}{{- fail "kafka.port, http.port, peers.port and the ports of listeners must differ" -}}{{- end -}}
{{- end -}}

{{/* Several agents in a pod: their ports, and the memory of each. */}}
{{- define "floe.checkProcesses" -}}
{{- $count := int .Values.processes -}}
{{- if gt $count 1 -}}
{{- $taken := dict (toString .Values.supervisorPort) "supervisorPort" -}}
{{- $firsts := list (list "http.port" .Values.http.port) (list "peers.port" .Values.peers.port) (list "kafka.port" .Values.kafka.port) -}}
{{- range .Values.listeners -}}{{- $firsts = append $firsts (list (printf "the port of listener %s" .name) .port) -}}{{- end -}}
{{- range $first := $firsts -}}
{{- range $port := prepend (include "floe.otherPorts" (list $ (last $first)) | fromJsonArray) (last $first) -}}
{{- if gt (int $port) 65535 -}}{{- fail (printf "processes: %s of a pod's last agent would be %d, and 65535 is the last port: choose a lower one" (first $first) (int $port)) -}}{{- end -}}
{{- if hasKey $taken (toString $port) -}}
{{- fail (printf "processes: the port %d would be taken twice, by %s and by %s, which are %s apart for each agent of a pod: choose others" (int $port) (get $taken (toString $port)) (first $first) (include "floe.portStep" $)) -}}
{{- end -}}
{{- $_ := set $taken (toString $port) (first $first) -}}
{{- end -}}
{{- end -}}
{{- $names := merge (dict "supervisor" "supervisorPort") (include "floe.otherNames" . | fromJson) -}}
{{- range $listener := .Values.listeners -}}
{{- with get $names (include "floe.portName" .name) -}}{{- fail (printf "listeners: the port %s would be there twice, for the listener and, with processes=%d, for %s: rename the listener" (include "floe.portName" $listener.name) $count .) -}}{{- end -}}
{{- end -}}
{{- range (include "floe.groups" . | fromJson).groups -}}
{{- $memory := dig "limits" "memory" "" .resources | toString -}}
{{- if regexMatch "^[0-9]+[MG]i$" $memory -}}
{{- $mib := mul (regexFind "^[0-9]+" $memory | int) (ternary 1024 1 (hasSuffix "Gi" $memory)) -}}
{{- $background := or (has "all" .roles) (has "background" .roles) -}}
{{- $needed := ternary (ternary 200 305 (eq (dig "tables" "enabled" true $.Values.config) false)) 170 $background -}}
{{- $each := div (sub $mib 72) $count -}}
{{- if lt (int $each) $needed -}}
{{- fail (printf "processes: each of the %d agents in a pod of group %s would have %d MiB of resources.limits.memory (%s), and %d is what one holds without any cache: raise it, or lower processes" $count .group (int $each) $memory $needed) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Names of the ports of a pod's other agents, as an object of JSON: whose each is. */}}
{{- define "floe.otherNames" -}}
{{- $names := dict -}}
{{- range $id := prepend (include "floe.ids" . | fromJsonArray) "http" -}}
{{- range $number := untilStep 1 (int $.Values.processes) 1 -}}{{- $_ := set $names (printf "%s-%d" $id $number) (printf "%s-%d of a pod's other agents" $id $number) -}}{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{- define "floe.ids" -}}
{{- $ids := list -}}
{{- range (include "floe.listeners" . | fromJson).listeners -}}{{- $ids = append $ids .id -}}{{- end -}}
{{- $ids | toJson -}}
{{- end -}}

{{/* Certificates and logins of Kafka's listeners. */}}
{{- define "floe.checkDoors" -}}
{{- range $key, $value := dict "authentication" "authentication" "metrics_open" "metricsOpen" "tls_cert_file" "tls.secretName" "tls_key_file" "tls.secretName" "tls_ca_file" "tls.secretName" "tls_client_auth" "tls.clientAuth" -}}
{{- if hasKey (default (dict) $.Values.config.http) $key -}}{{- fail (printf "config.http.%s: set http.%s instead, which probes and volumes follow" $key $value) -}}{{- end -}}
{{- end -}}
{{- if and (ne .Values.http.tls.clientAuth "none") (not .Values.http.tls.secretName) -}}
{{- fail (printf "http.tls.clientAuth %s needs http.tls.secretName, a Secret with tls.crt, tls.key and ca.crt" .Values.http.tls.clientAuth) -}}
{{- end -}}
{{- if and (hasKey .Values.config "sasl") (or .Values.sasl.adminUser .Values.sasl.usersSecretName) -}}
{{- range $key, $value := dict "admin_user" "sasl.adminUser" "users_file" "sasl.usersSecretName" -}}
{{- if hasKey $.Values.config.sasl $key -}}{{- fail (printf "config.sasl.%s: set %s instead, which Secrets and volumes follow" $key $value) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne (empty .Values.sasl.adminUser) (empty .Values.sasl.adminSecretName) -}}
{{- fail "sasl.adminUser and sasl.adminSecretName, a Secret with the key `password`, go together: set both or none" -}}
{{- end -}}
{{- range (include "floe.listeners" . | fromJson).listeners -}}
{{- $where := ternary "kafka" (printf "listeners: %s" .name) (eq .id "kafka") -}}
{{- if and .encrypted (not .secret) -}}
{{- fail (printf "%s speaks %s and has no certificate: set its tls.secretName, a Secret with tls.crt and tls.key, or tls.certManager.enabled" $where .protocol) -}}
{{- end -}}
{{- if and (not .encrypted) (or (and (eq .id "kafka") .secret) (and (ne .id "kafka") .tls.secretName)) -}}
{{- fail (printf "%s has tls and speaks %s, which is in the clear: set its protocol to SSL or SASL_SSL" $where .protocol) -}}
{{- end -}}
{{- if and .saslMechanisms (not (hasPrefix "SASL_" .protocol)) -}}
{{- fail (printf "%s has saslMechanisms and speaks %s, where nobody logs in: set its protocol to SASL_SSL" $where .protocol) -}}
{{- end -}}
{{- if and .encrypted .tls.certManager.enabled -}}
{{- if not .tls.certManager.issuerRef.name -}}{{- fail (printf "%s: tls.certManager.issuerRef.name is empty: name the issuer that clients trust" $where) -}}{{- end -}}
{{- include "floe.checkIssued" (list $where .tls.certManager) -}}
{{- if not (include "floe.listenerNames" (list $ .) | fromJsonArray) -}}
{{- fail (printf "%s: tls.dnsNames is empty, and a certificate is for names: say those under which clients reach it" $where) -}}
{{- end -}}
{{- end -}}
{{- if and .encrypted (eq .id "kafka") (not $.Values.kafka.advertisedHost) (ne $.Values.kind "StatefulSet") -}}
{{- fail (printf "kafka speaks %s: pods of a Deployment have no names for a certificate; use kind: StatefulSet, or set kafka.advertisedHost" .protocol) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What stands around the agents. */}}
{{- define "floe.checkParts" -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor and podMonitor are both enabled, and each agent would be scraped twice: choose one" -}}
{{- end -}}
{{- if and (or .Values.spark.audit.enabled .Values.spark.maintenance.enabled) (not .Values.spark.image) -}}
{{- fail "spark.image is empty: name an image with Floe, PySpark, Java and jars, as docs/spark.md builds it" -}}
{{- end -}}
{{- with .Values.spark.audit -}}
{{- if and .enabled (not .topics) (or .wholeSchedule (not .continuous.enabled)) -}}
{{- fail "spark.audit.topics is empty: name the topics to audit; only spark.audit.continuous.enabled without spark.audit.wholeSchedule takes all that have a table" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.spark.audit.enabled (hasPrefix "s3://" .Values.objectStore.url) (not .Values.objectStore.credentialsSecretName) -}}
{{- fail "spark.audit needs objectStore.credentialsSecretName: an audit reads the bucket with keys of its own, not with the pod's identity" -}}
{{- end -}}
{{- if .Values.quickstart.enabled -}}
{{- $full := include "floe.fullname" . -}}
{{- $where := dict "etcd.endpoints" (list (join "," .Values.etcd.endpoints) (printf "%s-etcd:2379" $full)) "objectStore.endpoint" (list .Values.objectStore.endpoint (printf "http://%s-minio:9000" $full)) "objectStore.credentialsSecretName" (list .Values.objectStore.credentialsSecretName (printf "%s-minio" $full)) -}}
{{- range $key, $pair := $where -}}
{{- if ne (first $pair) (last $pair) -}}{{- fail (printf "quickstart.enabled brings an etcd and a MinIO along, and %s is %q: set it to %s, as quickstart.yaml of the chart does, or leave quickstart out" $key (first $pair) (last $pair)) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (or (not .Values.httpRoute.hosts) (not .Values.httpRoute.parentRefs)) -}}
{{- fail "httpRoute.enabled needs httpRoute.hosts and httpRoute.parentRefs: the names that it answers for, and the gateways" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.enabled needs ingress.hosts: without one it would answer for every name" -}}
{{- end -}}
{{- end -}}

{{/* Variables, volumes and mounts of Spark's pods: as those of an agent's, none twice. */}}
{{- define "floe.checkSpark" -}}
{{- with .Values.spark -}}
{{- if or .audit.enabled .maintenance.enabled -}}
{{- $taken := dict "HOME" "the chart sets it" "FLOE_BOOTSTRAP" "the chart sets it" "FLOE_HTTP" "the chart sets it" "FLOE_JARS" "set spark.jars" "FLOE_SPARK_JARS" "set spark.jars" "FLOE_KAFKA_JARS" "set spark.kafkaJars" -}}
{{- if $.Values.objectStore.credentialsSecretName -}}{{- $taken = merge $taken (dict "AWS_ACCESS_KEY_ID" "it is in objectStore.credentialsSecretName" "AWS_SECRET_ACCESS_KEY" "it is in objectStore.credentialsSecretName") -}}{{- end -}}
{{- range $.Values.extraEnv -}}
{{- $name := .name -}}
{{- with get $taken .name -}}{{- fail (printf "extraEnv: Spark's jobs have it too, and there %s is already: %s; or leave spark out" $name .) -}}{{- end -}}
{{- $_ := set $taken .name "extraEnv sets it" -}}
{{- end -}}
{{- $taken = merge $taken (include "floe.ownEnv" $ | fromJson) -}}
{{- range .extraEnv -}}
{{- if hasKey $taken .name -}}{{- fail (printf "spark.extraEnv: %s is there already: %s" .name (default "the chart sets it" (get $taken .name))) -}}{{- end -}}
{{- $_ := set $taken .name "the list has it twice" -}}
{{- end -}}
{{- $volumes := dict "config" "the chart's own" "scratch" "the chart's own" -}}
{{- $paths := dict "/etc/floe/floe.yaml" "" "/var/lib/floe" "" "/tmp" "" "/etc/floe" "" "/opt/floe" "" -}}
{{- range $volume, $_ := include "floe.keys" $ | fromJson -}}{{- $_ := set $volumes $volume "the chart's own" -}}{{- $_ := set $paths (printf "/etc/floe/%s" $volume) "" -}}{{- end -}}
{{- range $.Values.extraVolumes -}}{{- $_ := set $volumes .name "one of extraVolumes" -}}{{- end -}}
{{- range .extraVolumes -}}
{{- if hasKey $volumes .name -}}{{- fail (printf "spark.extraVolumes: the volume %s is %s or there twice; choose another name" .name (get $volumes .name)) -}}{{- end -}}
{{- $_ := set $volumes .name "spark.extraVolumes'" -}}
{{- end -}}
{{- range $where, $mounts := dict "extraVolumeMounts" $.Values.extraVolumeMounts "spark.extraVolumeMounts" .extraVolumeMounts -}}
{{- range $mounts -}}
{{- if not (hasKey $volumes .name) -}}{{- fail (printf "%s: %s is mounted and Spark's pods have no such volume" $where .name) -}}{{- end -}}
{{- $path := trimSuffix "/" .mountPath -}}
{{- if hasKey $paths $path -}}{{- fail (printf "%s: something is mounted at %s of Spark's pods already; choose another path" $where .mountPath) -}}{{- end -}}
{{- $_ := set $paths $path "" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
