{{/*
Every listener of Kafka's clients with what it does not say itself: a JSON object {"listeners": […]}, the one of `kafka` first.
Beside its values a listener has
  id        of its port, its volume and its Secret: kafka, or the name in lower case
  encrypted whether it speaks TLS
  secret    the Secret with its certificate: the one that is named, or that cert-manager writes
*/}}
{{- define "floe.listeners" -}}
{{- $full := include "floe.fullname" . -}}
{{- $all := list -}}
{{- $name := default "PLAINTEXT" .Values.kafka.protocol -}}
{{- range prepend .Values.listeners (merge (dict "name" $name "id" "kafka") .Values.kafka) -}}
{{- $tls := mergeOverwrite (deepCopy $.Values.kafka.tls) (dict "secretName" "" "dnsNames" list) (default dict .tls) -}}
{{- if eq (default "" .id) "kafka" -}}{{- $tls = deepCopy $.Values.kafka.tls -}}{{- end -}}
{{- $id := default (include "floe.portName" .name) .id -}}
{{- $protocol := default "PLAINTEXT" .protocol -}}
{{- $encrypted := hasSuffix "SSL" $protocol -}}
{{- $host := default "{ip}" .advertisedHost -}}
{{- if and $encrypted (not .advertisedHost) -}}{{- $host = printf "{pod}.%s-agents.%s.svc" $full $.Release.Namespace -}}{{- end -}}
{{- $own := dict "id" $id "tls" $tls "protocol" $protocol "encrypted" $encrypted "advertisedHost" $host "zone" (default "" .zone) -}}
{{- $_ := set $own "secret" (default (ternary (printf "%s-%s-tls" $full $id) "" $tls.certManager.enabled) $tls.secretName) -}}
{{- $all = append $all (merge $own (deepCopy .)) -}}
{{- end -}}
{{- dict "listeners" $all | toJson -}}
{{- end -}}

{{/* A listener as the agent's configuration has it, of those of floe.listeners. */}}
{{- define "floe.listenerConfig" -}}
{{- $said := dict "name" .name "host" "0.0.0.0" "port" (int .port) "advertised_host" .advertisedHost "zone" .zone -}}
{{- if .advertisedPort -}}{{- $_ := set $said "advertised_port" .advertisedPort -}}{{- end -}}
{{- if ne .protocol "PLAINTEXT" -}}{{- $_ := set $said "protocol" .protocol -}}{{- end -}}
{{- if ne (default "topic" .frames) "topic" -}}{{- $_ := set $said "frames" .frames -}}{{- end -}}
{{- range $key, $setting := dict "connectionsMax" "connections_max" "connectionsPerSecondMax" "connections_per_s_max" "connectionsPerIpMax" "connections_per_ip_max" "connectionsPerIp" "connections_per_ip" -}}
{{- with get $ $key -}}{{- $_ := set $said $setting . -}}{{- end -}}
{{- end -}}
{{- if and (hasPrefix "SASL_" .protocol) .saslMechanisms -}}{{- $_ := set $said "sasl_mechanisms" .saslMechanisms -}}{{- end -}}
{{- if .encrypted -}}
{{- $folder := printf "/etc/floe/tls/%s" .id -}}
{{- $_ := set $said "tls_cert_file" (printf "%s/tls.crt" $folder) -}}
{{- $_ := set $said "tls_key_file" (printf "%s/tls.key" $folder) -}}
{{- if ne .tls.clientAuth "none" -}}
{{- $_ := set $said "tls_ca_file" (printf "%s/ca.crt" $folder) -}}
{{- $_ := set $said "tls_client_auth" .tls.clientAuth -}}
{{- end -}}
{{- range $key, $setting := dict "protocols" "tls_protocols" "ciphers" "tls_ciphers" "principalFrom" "tls_principal_from" "principalRules" "tls_principal_rules" -}}
{{- with get $.tls $key -}}{{- $_ := set $said $setting . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- $said | toJson -}}
{{- end -}}

{{/* Names that a listener's certificate is for, where cert-manager writes it, (list <context> <listener>): as JSON. */}}
{{- define "floe.listenerNames" -}}
{{- $full := include "floe.fullname" (index . 0) -}}
{{- $namespace := (index . 0).Release.Namespace -}}
{{- with index . 1 -}}
{{- $names := .tls.dnsNames -}}
{{- if eq .id "kafka" -}}
{{- $names = concat (list $full (printf "%s.%s" $full $namespace) (printf "%s.%s.svc" $full $namespace) (printf "%s.%s.svc.cluster.local" $full $namespace) (printf "*.%s-agents.%s.svc" $full $namespace)) $names -}}
{{- end -}}
{{- $names | uniq | toJson -}}
{{- end -}}
{{- end -}}
